-- key_look: who holds a business key in each phase, and how its job ended if that is remembered
-- KEYS queues
-- ARGV scope name once_for
-- returns for each of o, u, w, r, f {jid, since, how many wait} or an empty list; then {s, f or x, jid, until} or an empty list
-- include base
-- include keys
-- include locks
-- include once
local scope, name, answer = ARGV[1], ARGV[2], {}
for _, phase in ipairs({'o', 'u', 'w', 'r', 'f'}) do
  local jid, since = lock_holder(phase, scope, name)
  local waiting_line = key('awaits') .. ((phase == 'o' or phase == 'f') and 'n' or phase) .. scope .. '\n' .. name
  answer[#answer + 1] = jid and {jid, since or '0', redis.call('ZCARD', waiting_line)} or {}
end
local letter, jid, left = once_look(scope, name, ARGV[3])
answer[#answer + 1] = letter and {letter, jid, as_text(server_now() + left / 1000)} or {}
return answer
