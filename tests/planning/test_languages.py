"""Any language: what the user typed stays, figures and words are found, whatever the script."""

import json

import pytest

from applier import preview
from planner import plan_compaction
from planner.evidence.words import figures_of, words_of

DEMANDS = {
    "English": ("Never book before noon.", "Yes, please go ahead with the return of the bookshelf."),
    "German": ("Buche niemals vor dem Mittag.", "Ja, bitte das Regal zurückgeben."),
    "French": ("Ne réserve jamais avant midi.", "Oui, vas-y, renvoie l'étagère."),
    "Spanish": ("No reserves nunca antes del mediodía.", "Sí, adelante con la devolución."),
    "Portuguese": ("Nunca reserve antes do meio-dia.", "Sim, pode devolver a estante."),
    "Russian": ("Никогда не бронируй до полудня.", "Да, возвращай полку."),
    "Turkish": ("Öğleden önce asla rezervasyon yapma.", "Evet, rafı iade et."),
    "Arabic": ("لا تحجز أبدا قبل الظهر.", "نعم، أعد الرف."),
    "Hindi": ("दोपहर से पहले कभी बुक मत करो।", "हाँ, अलमारी वापस कर दो।"),
    "Chinese": ("中午之前绝对不要预订。", "好的，请退回书架。"),
    "Japanese": ("正午より前には絶対に予約しないで。", "はい、本棚を返品してください。"),
    "Korean": ("정오 전에는 절대 예약하지 마세요.", "네, 책장을 반품해 주세요."),
    "Thai": ("ห้ามจองก่อนเที่ยงเด็ดขาด", "ได้เลย คืนชั้นหนังสือ"),
}


@pytest.mark.parametrize(("demand", "consent"), DEMANDS.values(), ids=DEMANDS)
@pytest.mark.parametrize("ratio", [0.02, 0.05, 0.25])
def test_a_demand_and_a_consent_stay_verbatim(demand, consent, ratio):
    messages = [{"role": "user", "content": "1. " + demand}]
    for number in range(30):
        rows = "\n".join(f"part {number}.{row}: value {row * 37 % 101}" for row in range(40))
        use = {"type": "tool_use", "id": f"c{number}", "name": "inbox", "input": {"page": number}}
        answer = {"type": "tool_result", "tool_use_id": f"c{number}", "content": rows}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]
        if number == 10:
            messages += [{"role": "assistant", "content": "?"}, {"role": "user", "content": consent}]
    messages += [{"role": "assistant", "content": "So far."}, {"role": "user", "content": "…"}]
    shown = preview(plan_compaction(messages, "", planner="rules", target_ratio=ratio, now=0.0))
    view = json.dumps(shown.messages, ensure_ascii=False)
    assert demand in view
    assert consent in view


FIGURES = {
    "日活1.36亿": ["1.36"],
    "on time 98.7%": ["98.7"],
    "am 30.11. um 16:30 für 1.240,50 Euro": ["30.11", "16:30", "1.240,50"],
    "จำนวน42คน": ["42"],
    "2026-03-14 or 14/03": ["2026-03-14", "14/03"],
}


@pytest.mark.parametrize(("text", "figures"), FIGURES.items())
def test_figures_are_found_by_themselves(text, figures):
    assert figures_of(text) == figures


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("更换玻璃水的频率", "频率"),
        ("予約を変更する", "予約"),
        ("ที่นั่งริมทางเดิน", "ที"),
        ("Straße", "strasse"),
        ("Ёлка", "ёлка"),
    ],
)
def test_words_of_any_script_are_words(text, word):
    assert word in words_of(text)
