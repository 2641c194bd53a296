(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const MAX_ROWS = 20;
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en-US");
  document.documentElement.classList.add("scripted");

  function make(name, text, className) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  }

  // The card: all that is known of a call.
  const card = byId("card");
  let reading = null; // {svg, place}

  function around(pieces, index) {
    const code = make("code");
    code.append(make("bdi", pieces[0]), make("mark", pieces[index] || "∅"), make("bdi", pieces[3]));
    return code;
  }

  function fill(lane, call) {
    const title = make("p", undefined, "title");
    title.append(make("bdi", lane.name), `, call ${number(call.call)}: ${call.cause ?? "no break"}`);
    const list = make("dl");
    const add = (name, value) => {
      const cell = make("dd");
      cell.append(value);
      list.append(make("dt", name), cell);
    };
    for (const [name, text] of call.rows ?? []) {
      add(name, make("bdi", text));
      if (name === "Seen" && call.around) {
        add("Was", around(call.around, 1));
        add("Is", around(call.around, 2));
      }
    }
    card.replaceChildren(title, make("p", call.sums, "sums-of"), list);
  }

  function placeCard(svg, place, x) {
    const box = svg.getBoundingClientRect();
    const row = box.height / laneOf(svg).calls.length;
    const top = box.top + row * place;
    const width = document.documentElement.clientWidth;
    const left = Math.min(x ?? box.left + 24, width - card.offsetWidth - 8);
    const below = top + row + 12;
    const lowest = window.innerHeight - card.offsetHeight - 8;
    card.style.left = `${Math.max(left, 8)}px`;
    card.style.top = `${Math.max(below <= lowest ? below : Math.min(top - card.offsetHeight - 12, lowest), 8)}px`;
  }

  const laneOf = (svg) => data.lanes[Number(svg.closest("figure").dataset.lane)];

  function read(svg, wanted, x) {
    const lane = laneOf(svg);
    const place = Math.min(Math.max(wanted, 0), lane.calls.length - 1);
    if (reading && reading.svg !== svg) rest();
    const cursor = svg.querySelector(".cursor");
    cursor.toggleAttribute("hidden", false);
    cursor.setAttribute("y", place);
    if (reading?.svg !== svg || reading.place !== place) fill(lane, lane.calls[place]);
    card.hidden = false;
    reading = { svg, place };
    placeCard(svg, place, x);
  }

  function rest() {
    if (!reading) return;
    reading.svg.querySelector(".cursor").toggleAttribute("hidden", true);
    card.hidden = true;
    reading = null;
  }

  for (const svg of all("svg.lane")) {
    const pointed = (event) => {
      const box = svg.getBoundingClientRect();
      const place = Math.floor(((event.clientY - box.top) / box.height) * laneOf(svg).calls.length);
      read(svg, place, event.clientX + 14);
    };
    svg.addEventListener("pointermove", pointed);
    svg.addEventListener("pointerdown", pointed);
    svg.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch" && document.activeElement !== svg) rest(); // a finger leaves when it is lifted
    });
    svg.addEventListener("focus", () => svg.matches(":focus-visible") && reading?.svg !== svg && read(svg, 0));
    svg.addEventListener("blur", rest);
    svg.addEventListener("keydown", (event) => {
      const last = laneOf(svg).calls.length - 1;
      const at = reading?.svg === svg ? reading.place : -1;
      const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last };
      if (event.key === "Escape") rest();
      if (!(event.key in to)) return;
      event.preventDefault();
      read(svg, to[event.key]);
    });
  }
  document.addEventListener("scroll", () => reading && document.activeElement !== reading.svg && rest(), { passive: true });

  document.addEventListener("pointerdown", (event) => event.target.closest("svg.lane, #card") || rest());

  // Filters: by cause and by session.
  const selects = { cause: byId("cause"), session: byId("session") };
  const breaks = data.lanes.flatMap((lane, index) =>
    lane.calls.flatMap((call, place) => (call.place === undefined || call.place === null ? [] : [{ lane, index, call, place }])),
  );
  breaks.sort((a, b) => b.call.lost - a.call.lost);

  function goTo({ index, place }) {
    const svg = document.querySelector(`figure[data-lane="${index}"] svg.lane`);
    svg.scrollIntoView({ block: "center" });
    svg.focus({ preventScroll: true });
    read(svg, place);
  }

  function rowOf(found) {
    const row = make("tr");
    const head = make("th");
    head.scope = "row";
    const button = make("button");
    button.type = "button";
    button.append(make("bdi", found.lane.name), ` call ${number(found.call.call)}`);
    button.addEventListener("click", () => goTo(found));
    head.append(button);
    const { cause, layer, token, lost, rows } = found.call;
    const seen = rows.find(([name]) => name === "Seen")[1];
    row.append(head, make("td", cause, "words"), make("td", number(lost), "main"), make("td", token));
    row.append(make("td", layer, "words"), make("td", seen, "words"));
    return row;
  }

  function show() {
    const cause = selects.cause.value;
    const session = selects.session.value;
    const isShown = (figure) =>
      (session === "" || figure.dataset.lane === session) &&
      (cause === "" || figure.dataset.causes.split(" ").includes(cause));
    const figures = all("figure[data-lane]");
    for (const figure of figures) figure.hidden = !isShown(figure);
    for (const path of all(".lane .breaks")) path.classList.toggle("off", cause !== "" && path.dataset.cause !== cause);
    for (const row of all(".causes tbody tr")) row.classList.toggle("off", cause !== "" && row.dataset.cause !== cause);
    const found = breaks.filter(
      ({ index, call }) => (session === "" || String(index) === session) && (cause === "" || String(call.place) === cause),
    );
    byId("breaks").hidden = !found.length;
    byId("breaks").querySelector("tbody").replaceChildren(...found.slice(0, MAX_ROWS).map(rowOf));
    byId("more").textContent = found.length > MAX_ROWS ? `and ${number(found.length - MAX_ROWS)} more, in the drawings and in --json` : "";
    const lost = found.reduce((sum, { call }) => sum + call.lost, 0);
    const num = figures.filter((figure) => !figure.hidden).length;
    const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
    byId("shown").textContent = `${number(num)} of ${many(figures.length, "session")}, ${many(found.length, "break")}, ${number(lost)} tokens lost`;
  }

  for (const select of Object.values(selects)) select.addEventListener("change", show);
  for (const button of all("button[data-choose]")) {
    button.addEventListener("click", () => {
      const chosen = button.dataset.choose;
      selects.cause.value = selects.cause.value === chosen ? "" : chosen;
      show();
    });
  }
  show();
})();
