-- outbox_forget: forget jids whose rows have left the outbox
-- KEYS relay sent
-- ARGV token (jid)*
-- returns how many were forgotten, or "FENCED" when the relay's lease has another token
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'FENCED'
end
local forgotten = 0
for at = 2, #ARGV do
  forgotten = forgotten + redis.call('SREM', KEYS[2], ARGV[at])
end
return forgotten
