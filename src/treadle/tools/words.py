"""Words as tools are found by: names taken apart, words that say nothing left out, and others for the same thing.

What people ask for and what tools say of themselves is mostly a verb and a thing. The lists below hold the closed
classes of English words, and the verbs that tools go by in many tongues ("make", "add", "create"). Words of other
languages are taken as they are.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
_HUMPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Particles (off, out, up, back) are no stop words: they make other verbs.
_STOP_WORDS: Final = """
a an the this that these those some any each every no
i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
who whom whose which what when where why how there here
am is are was were be been being do does did done have has had will would shall should can could may might must
ll ve re s d t m
and or but nor so if then than as because while until since
of to for with by at in into from about between through during before after
not only just also too very please thanks thank let lets want need like
"""
_STOP: Final = frozenset(_STOP_WORDS.split())

_ALIKE: Final = """
create add new make open register insert enter
delete remove erase drop discard destroy rid
archive retire shelve
update edit change modify adjust alter correct fix
get fetch read show retrieve view display
find search look query locate
list all enumerate
count many number total
cancel abort stop call
pause hold suspend freeze mute silence
start begin launch run trigger execute
restart reboot
retry again repeat rerun
send mail email message write
post message tell announce publish notify inform
reply answer respond
remind nudge reminder
share access grant give allow permit
revoke withdraw deny forbid
approve accept confirm
reject decline refuse
assign hand delegate
merge join combine unify together
compare diff difference changed
copy duplicate clone
move transfer relocate
upload attach import
download export save
restore recover revert rollback back undo
deploy release ship
schedule plan arrange book reserve
buy purchase order
pay reimburse payment
refund money back
convert turn transform
check verify validate test
calculate compute work
summarise summarize summary digest
bill invoice
customer client
employee staff colleague worker
vendor supplier
contract agreement
meeting appointment meet
vacation holiday leave
error failure failed crash bug
issue problem
picture image photo
file document
folder directory
comment remark note
price cost
car vehicle
flight fly
statistics metrics figures
password credentials
"""


def apart(name: str) -> str:
    """Return a name as words: split where it has underscores, hyphens or humps."""
    return _HUMPS.sub(" ", name).replace("_", " ").replace("-", " ")


def telling(text: str) -> list[str]:
    """Return the words of a text that say something, each once, in order."""
    words = _WORD.findall(_HUMPS.sub(" ", text).lower())
    return [word for word in dict.fromkeys(words) if word not in _STOP]


@cache
def groups() -> tuple[tuple[str, ...], ...]:
    """Return the groups of words that stand for each other."""
    return tuple([tuple(line.split()) for line in _ALIKE.strip().splitlines()])
