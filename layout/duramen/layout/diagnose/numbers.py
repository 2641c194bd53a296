"""What number a text says: in digits, words, Roman or Chinese numerals."""

import re

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty",
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
    " thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth",
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn"
    " fünfzehn",
    "nullte erste zweite dritte vierte fünfte sechste siebte achte neunte zehnte elfte zwölfte",
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
    "zéroième premier deuxième troisième quatrième cinquième sixième septième huitième neuvième"
    " dixième",
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince",
    "zero primer segundo tercer cuarto quinto sexto séptimo octavo noveno décimo",
    "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici",
    "zero um dois três quatro cinco seis sete oito nove dez onze doze treze",
    "nul een twee drie vier vijf zes zeven acht negen tien elf twaalf",
    "ноль один два три четыре пять шесть семь восемь девять десять",
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {
    **{word: i for words in reversed(_UNITS) for i, word in enumerate(words.split())},
    **{word: 20 + 10 * i for i, word in enumerate(_TENS.split())},
    **dict.fromkeys(["no", "none"], 0),
    **dict.fromkeys(["ein", "eine", "une", "una"], 1),
    **dict.fromkeys(["dozen", "a dozen"], 12),
}
_DIGITS = re.compile(r"(\d+)(?:st|nd|rd|th|e|er|ère|ème|ª|º)?")
_ROMAN = re.compile(r"(?=[ivxlc])c{0,3}(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_CHINESE = re.compile(r"([二三四五六七八九]?十)?([零〇一二三四五六七八九])?")
CHINESE_DIGITS = "零一二三四五六七八九十"


def number(text: str) -> int | None:
    """None where the text is no number, or one of another form. Roman numerals: see `roman`."""
    low = text.strip().lower()
    if found := _DIGITS.fullmatch(low):
        return int(found[1][:18])
    if low in _WORDS:
        return _WORDS[low]
    tens, _, unit = low.replace(" ", "-").partition("-")
    if tens in _TENS.split() and 0 < _WORDS.get(unit, 0) < 10:
        return _WORDS[tens] + _WORDS[unit]
    return _chinese(low)


def roman(text: str) -> int | None:
    """Up to 399, in one case."""
    low = text.lower()
    if text not in (low, text.upper()) or not _ROMAN.fullmatch(low):
        return None
    values = [_ROMAN_VALUES[letter] for letter in low]
    behind = [*values[1:], 0]
    return sum(-a if a < b else a for a, b in zip(values, behind, strict=True))


def _chinese(text: str) -> int | None:
    found = _CHINESE.fullmatch(text)
    if not text or found is None:
        return None
    tens, unit = found[1] or "", (found[2] or "零").replace("〇", "零")
    ten = 0 if not tens else 10 * (1 if tens == "十" else CHINESE_DIGITS.index(tens[0]))
    return ten + CHINESE_DIGITS.index(unit)
