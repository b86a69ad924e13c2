"""Recognises the signs by which any tool reports an error: a field of a JSON object, or the first line of a text.

Only forms count that a program uses for a report: a field with its value, a label with a colon, a status of HTTP.
Sentences are not read: "Payment was declined" is no sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from http import HTTPStatus
from typing import Any, NamedTuple

from planner.reading.lazy import lazy_pattern

HEAD_CHARACTERS = 80
"""Number of first characters of a line in which the colon of a label is looked for."""

_STATUS_KEYS = frozenset({"status", "statuscode", "httpstatus", "code"})
"""Names of fields with a status of HTTP as a number."""


class _Language(NamedTuple):
    """Words of one language. The first two are patterns, the others words with blanks between them."""

    error: str
    """Word for an error, as it begins a label or names a field: ``Error``, ``Buchungsfehler``."""
    nothing: str
    """Words by which a label reports that there is no error: ``none``, ``keine``."""
    state: str
    """Names of fields with a word about how the call ended."""
    success: str
    """Names of fields that are true if the call succeeded."""
    failed: str
    """Words by which an action reports that it failed; of a call that only reads, they are about what it read."""


_LANGUAGES = (
    _Language(
        r"(?:\w{0,40}_)?(?:error|exception)\b|(?-i:\w{1,40}(?:Error|Exception))\b|(?:\w{1,20} ){0,3}failed\b|failure\b"
        r"|traceback\b(?: \(most recent call last\))?",
        "none|null|false|no errors?",
        "state result outcome",
        "success ok succeeded",
        "failed failure declined denied rejected refused timeout timedout notfound forbidden unauthorized"
        " permissiondenied",
    ),
    _Language(
        r"\w{0,40}fehler(?:meldung)?\b",
        "keine?r?|ohne",
        "ergebnis zustand",
        "erfolg erfolgreich",
        "abgelehnt fehlgeschlagen gescheitert verweigert",
    ),
    _Language(
        r"erreur\b", "aucune?|sans", "statut état résultat", "succès", "refusé refusée rejeté rejetée échoué échec"
    ),
    _Language(  # Spanish and Portuguese; the word of Spanish for an error is that of English
        r"erro\b",
        "ningun[oa]?|nenhum|sin|sem",
        "estado resultado",
        "éxito exito sucesso",
        "rechazado rechazada denegado denegada fallido fallida recusado recusada negado negada falhou",
    ),
    _Language(r"ошибка\b", "нет|без", "статус состояние результат", "успех успешно", "отклонено отказано неудача"),
    _Language(r"hata\b", "yok", "durum sonuç", "başarılı", "reddedildi başarısız"),
    _Language("خطأ", "لا|بدون", "الحالة حالة النتيجة", "نجاح", "مرفوض فشل"),
    _Language("त्रुटि", "नहीं|बिना", "स्थिति परिणाम", "सफल", "अस्वीकृत विफल"),
    _Language(r"\w{0,40}(?:错误|錯誤)", "无|無|没有|沒有", "状态 狀態 结果 結果", "成功", "失败 失敗 拒绝 拒絕 已拒绝"),
    _Language(r"\w{0,40}エラー", "なし|無し|ありません", "状態 ステータス 結果", "成功", "失敗 拒否 却下"),
    _Language("오류|에러", "없음|없습니다", "상태 결과", "성공", "실패 거절 거부 거절됨"),
    _Language("ข้อผิดพลาด", "ไม่มี", "สถานะ ผลลัพธ์", "สำเร็จ", "ล้มเหลว ปฏิเสธ"),
)


def _plain(text: str) -> str:
    """Return a name or status in small letters without separators: ``notfound`` for ``NOT_FOUND``."""
    return "".join(filter(str.isalnum, text.casefold()))


def _words(lists: Iterable[str]) -> frozenset[str]:
    return frozenset(_plain(word) for words in lists for word in words.split())


_ERROR_KEYS = frozenset({"error", "errors", "errormessage", "exception", "failure"})
_ERROR_CODE_KEYS = frozenset({"errcode", "errno", "errorcode"})
"""Names of fields with a number that is 0 without an error, as in many Chinese services."""
_ERROR_KEY = lazy_pattern("|".join(language.error for language in _LANGUAGES[1:]), re.I)
"""Word for an error in other languages than English, as the name or value of a field: ``fehler``, ``错误``."""
_STATE_KEYS = _STATUS_KEYS | _words(language.state for language in _LANGUAGES)
_SUCCESS_KEYS = _words(language.success for language in _LANGUAGES)
_FAILED_STATES = _words(language.failed for language in _LANGUAGES)
_WORD = lazy_pattern(rf"\W{{0,8}}(?:{'|'.join(language.error for language in _LANGUAGES)})", re.I)
"""Word for an error at the beginning of a line: ``Error``, ``<tool_use_error``, ``ValueError``; not ``Errors``."""
_NO_ERROR = lazy_pattern("|".join(language.nothing for language in _LANGUAGES[1:]), re.I)
"""Words in a label that deny an error: ``Fehler: keine``; those of English are in no label."""
_NOTHING = lazy_pattern(
    rf"\W{{0,4}}(?:0\w{{0,3}}|{'|'.join(language.nothing for language in _LANGUAGES)})(?:\W*$|\s*[,;}}])", re.I
)
"""Value that denies an error: ``0``, ``none``, ``なし``; not ``no seats left``."""
_COLON = lazy_pattern("[:：>]")  # also the end of a tag: ``<tool_use_error>``
_HTTP = lazy_pattern(r"\W{0,3}HTTP(?P<raw>/\d(?:\.\d)?)?(?: (?:error|status|code)){0,2}:? {0,2}[45]\d\d\b", re.I)
"""Status of HTTP that reports an error: ``HTTP/1.1 403 Forbidden``, ``HTTP 500``."""
_STATUS_LINES = frozenset(f"{status.value} {status.phrase.casefold()}" for status in HTTPStatus if status >= 400)
"""Statuses of HTTP that report an error, with their phrases: ``500 internal server error``."""


class Sign(IntEnum):
    """How surely the first line of a text reports an error."""

    NONE = 0
    WORDS = 1
    """Words that also begin a text about errors: ``Error handling``, ``404 Not Found``."""
    LABEL = 2
    """Label of a report: ``Error: no such flight``, ``エラー：満席``."""


def error_sign(line: str) -> Sign:
    """Return how surely `line`, the first line of a text, reports an error."""
    if http := _HTTP.match(line):
        return Sign.LABEL if http["raw"] else Sign.WORDS
    colon = _COLON.search(line[:HEAD_CHARACTERS])
    head, value = (line[: colon.start()], line[colon.end() :]) if colon else (line[:HEAD_CHARACTERS], "")
    if " ".join(head.casefold().split()) in _STATUS_LINES:
        return Sign.WORDS
    word = _WORD.match(head)
    if word is None or _NO_ERROR.search(head) or _NOTHING.match(value if colon else head[word.end() :]):
        return Sign.NONE
    if colon is None:
        return Sign.WORDS if word[0].isascii() else Sign.NONE
    if "fail" in word[0].casefold() and value.strip().isdigit():  # a count: ``Failed attempts: 3``
        return Sign.NONE
    return Sign.WORDS if any(map(str.isalpha, head[word.end() :])) else Sign.LABEL


def is_state(key: str, value: str) -> bool:
    """Return True if the field `key` of a result shows by one word, `value`, how the call ended: ``booked``."""
    return _plain(key) in _STATE_KEYS and value.isalpha() and value not in ("null", "true", "false")


class ErrorField(NamedTuple):
    """Field of a JSON object that reports an error."""

    name: str
    is_sure: bool
    """False for a status in words: unless the call surely acts, it may be the status of something that it read."""


def error_field(result: Mapping[str, Any], asked: str, *, may_act: bool, depth: int = 0) -> ErrorField | None:
    """Return the field of the JSON object `result` that reports an error.

    Such a field is a status of HTTP of 400 to 599, an ``errcode`` other than 0, an ``error`` that is not empty, a
    ``success`` that is false, or else a status in words such as ``declined``. `asked`: name and arguments of the call;
    a status that it asks for is no error: ``reject_offer``. `may_act`: True if the call may be an action; only then may
    a status in words report its failure, as a call that reads returns statuses of other things. If the object has a
    single field with another object, that one is read, too, with the `depth` 1.
    """
    doubtful = None
    for key, value in result.items():
        name = _plain(key)
        is_http = name in _STATUS_KEYS and isinstance(value, int) and 400 <= value <= 599
        is_no_success = (name in _SUCCESS_KEYS and value is False) or (name in ("iserror", "failed") and value is True)
        is_code = name in _ERROR_CODE_KEYS and isinstance(value, int) and value != 0
        if is_http or is_no_success or is_code or (_names_error(key) and _is_error(value)):
            return ErrorField(key, is_sure=True)
        if name in _STATE_KEYS and isinstance(value, str) and _is_failed_state(name, value, asked, may_act=may_act):
            doubtful = doubtful or ErrorField(key, is_sure=False)
        if depth == 0 and len(result) == 1 and isinstance(value, dict):
            # some services wrap the error in an object with one field: ``{"fehler": {"status": 409, …}}``
            return error_field(value, asked, may_act=may_act, depth=1)
    return doubtful


def _is_failed_state(name: str, value: str, asked: str, *, may_act: bool) -> bool:
    """Return True if the field `name` reports by the word `value` that the call failed; parameters as `error_field`."""
    word = _plain(value)
    is_asked = word.removesuffix("ed") in _plain(asked).replace("y", "i")  # ``deny_offer`` asks for ``denied``
    if word in _FAILED_STATES:
        return may_act and not is_asked
    is_error = word == "fail" or _names_error(value)  # as a value only: a list in a field ``fail`` may be of tests
    return is_error and (may_act or name == "status") and not is_asked


def _names_error(text: str) -> bool:
    """Return True if `text`, the name of a field or a status, is a word for an error in any language."""
    return _plain(text) in _ERROR_KEYS or (_ERROR_KEY.fullmatch(text) is not None and not _NO_ERROR.match(text))


def _is_error(value: object) -> bool:
    """Return True if `value`, in a field for errors, reports one. A number does not, as it may be a count."""
    if isinstance(value, str):
        return bool(value) and not _NOTHING.match(value)
    if isinstance(value, dict):
        return any(value.values())
    return value is True or (bool(value) and not isinstance(value, int | float))
