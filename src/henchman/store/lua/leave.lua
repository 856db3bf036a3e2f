-- leave: take an identity that holds nothing off the books
-- KEYS lease identities flights (flight)*
-- ARGV identity
-- returns 1, or 0 when one of its in-flight lists still holds something (then nothing was changed)
for i = 4, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    return 0
  end
end
redis.call('DEL', KEYS[1], KEYS[3])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
