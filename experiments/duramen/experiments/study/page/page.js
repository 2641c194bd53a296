(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const chosen = { arm: 0, model: 0, device: 0, price: 0, lane: 0 };
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const hide = (element, isHidden) => element.toggleAttribute("hidden", isHidden);
  document.documentElement.classList.add("scripted");

  // Choices: fill the cells, show what belongs to the choice, order the rows.
  function fill(element) {
    const cell = data.cells[element.dataset.cell];
    let text = cell.texts;
    for (const choice of cell.by) text = text[chosen[choice]];
    const row = element.closest("[data-layout]");
    if (row) text = text[Number(row.dataset.layout)];
    if (element.dataset.attr) element.setAttribute(element.dataset.attr, text);
    else if (element.textContent !== text) element.textContent = text;
  }

  function show() {
    all("[data-cell]").forEach(fill);
    for (const element of all("[data-when]")) {
      const [choice, value] = element.dataset.when.split("=");
      hide(element, chosen[choice] !== Number(value));
    }
    for (const body of all("tbody[data-ordered]")) {
      for (const layout of data.orders[chosen.arm] ?? []) {
        body.append(body.querySelector(`[data-layout="${layout}"]`));
      }
    }
  }

  // The break-even curves follow the chosen model where they have its price.
  function follow(select) {
    const price = document.querySelector("select[data-choice=price]");
    if (select.dataset.choice !== "model" || !price) return;
    const wanted = select.selectedOptions[0].text;
    const same = [...price.options].findIndex((option) => option.text === wanted);
    if (same >= 0) price.selectedIndex = chosen.price = same;
  }

  for (const select of all("select[data-choice]")) {
    chosen[select.dataset.choice] = Math.max(select.selectedIndex, 0);
    select.addEventListener("change", () => {
      chosen[select.dataset.choice] = select.selectedIndex;
      follow(select);
      show();
    });
  }

  // Read-outs: a place of a drawing, by pointer or arrow keys, in words below it.
  function readable(svg, places, say, mark) {
    const output = svg.closest("figure").querySelector(".readout");
    const cursor = svg.querySelector(".cursor");
    let place = -1;
    const rest = () => {
      hide(cursor, true);
      output.textContent = output.dataset.rest;
    };
    const read = (index) => {
      place = Math.min(Math.max(index, 0), places - 1);
      hide(cursor, false);
      mark(cursor, place);
      output.textContent = say(place);
    };
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      read(place + step);
    });
    svg.addEventListener("focus", () => svg.matches(":focus-visible") && read(place));
    svg.addEventListener("blur", rest);
    svg.addEventListener("pointerleave", rest);
    rest();
    return read;
  }

  const number = (value) => value.toLocaleString("en-US");

  for (const svg of all("svg[data-lane]")) {
    const calls = JSON.parse(svg.dataset.lane);
    const say = (index) => {
      const [prompt, cached, cause] = calls[index];
      const held = cached === null ? "not held by the pool" : `${number(cached)} cached`;
      const broke = cause === undefined ? "" : `; broke at ${data.causes[cause]}`;
      return `call ${index}: ${number(prompt)} prompt tokens, ${held}${broke}`;
    };
    const read = readable(svg, calls.length, say, (cursor, row) => cursor.setAttribute("y", row));
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      read(Math.floor(((event.clientY - box.top) / box.height) * calls.length));
    });
  }

  for (const figure of all("figure[data-curves]")) {
    const svg = figure.querySelector("svg[data-places]");
    const places = JSON.parse(svg.dataset.places);
    const heads = all("thead th", figure).slice(1);
    const say = (index) => {
      const rows = all("tbody:not([hidden]) tr", figure);
      const values = rows.map((row) => `${row.cells[0].textContent} ${row.cells[index + 1].textContent.trim()}`);
      return `${heads[index].textContent}: ${values.join(", ")}`;
    };
    const read = readable(svg, places.length, say, (cursor, index) => {
      cursor.setAttribute("x1", `${places[index]}%`);
      cursor.setAttribute("x2", `${places[index]}%`);
    });
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * 100;
      const near = places.map((place) => Math.abs(place - at));
      read(near.indexOf(Math.min(...near)));
    });
  }

  // What a mark stands for, beside the pointer. A part of a bar is a cell of the table below it.
  function meaning(mark) {
    if (mark.dataset.tip) return mark.dataset.tip;
    const part = Number(mark.dataset.part) + 1;
    const place = mark.closest("tbody").dataset.when;
    const parts = document.getElementById("parts");
    const row = parts.querySelector(`tbody[data-when="${place}"]`).rows[mark.closest("tr").sectionRowIndex];
    const kind = parts.tHead.rows[0].cells[part].textContent;
    return `${row.cells[0].textContent}: ${row.cells[part].textContent.trim()} tokens ${kind}`;
  }

  const tip = document.getElementById("tip");
  document.addEventListener("pointermove", (event) => {
    const marked = event.target.closest?.("[data-tip], [data-part]");
    hide(tip, !marked);
    if (!marked) return;
    tip.textContent = meaning(marked);
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const isRoom = below + tip.offsetHeight < window.innerHeight;
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${isRoom ? below : event.clientY - tip.offsetHeight - 10}px`;
  });

  show();
})();
