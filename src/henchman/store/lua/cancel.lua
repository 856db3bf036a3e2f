-- cancel: write a jid down as cancelled and tell every process
-- KEYS cancelled cancels iteration
-- ARGV jid channel message keep_s
-- returns how many processes heard it. Workers compare the counter with every fetch and read the set when it moved.
--   An iterable job also finds its flag, in Ruby too (wire format, section 16); c is written with it, because a Ruby
--   worker that finds the flag alone fails at every attempt instead of cancelling.
-- include now
local now = server_now()
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', as_text(now - tonumber(ARGV[4])))
redis.call('ZADD', KEYS[1], as_text(now), ARGV[1])
redis.pcall('HSETNX', KEYS[3], 'cancelled', math.floor(now))
redis.pcall('HSETNX', KEYS[3], 'c', 'null')
if redis.call('TTL', KEYS[3]) == -1 then
  redis.call('EXPIRE', KEYS[3], ARGV[4])
end
redis.call('INCR', KEYS[2])
return redis.call('PUBLISH', ARGV[2], ARGV[3])
