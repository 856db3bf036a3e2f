-- decided: strike a decision off the list, and put what is left of it at its end
-- KEYS decide
-- ARGV entry (left)*
-- returns 1, or 0 when another process did so before: nothing was changed then
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then
  return 0
end
for at = 2, #ARGV do
  redis.call('RPUSH', KEYS[1], ARGV[at])
end
return 1
