-- need_states: what became of needs
-- KEYS queues
-- ARGV (scope name once_for)*
-- returns {letter, jid, since} of each: l its job lives, d it is dead, s it succeeded, f it failed, x it is over without
--   success, an empty letter: nobody knows. jid and since (0: not told) as far as they are known.
-- include base
-- include keys
-- include needs
local answer = {}
for at = 1, #ARGV, 3 do
  local letter, jid, since = needing().state(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  answer[#answer + 1] = {letter, jid, since}
end
return answer
