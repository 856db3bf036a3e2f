-- cancel: write a jid down as cancelled and tell every process
-- KEYS cancelled cancels cancel_log iteration
-- ARGV jid channel message keep_s is_job
-- returns how many processes heard it. Workers compare the counter with every fetch and read the log when it moved.
--   is_job is 0 for a batch, 1 for a job: an iterable one also finds its flag, in Ruby too (wire format, section 16);
--   c is written with it, because a Ruby worker that finds the flag alone fails at every attempt instead of cancelling.
-- include now
-- include cancel_log
local FORGOTTEN = 100  -- old marks that one call removes
local now = server_now()
local old = as_text(now - tonumber(ARGV[4]))
local some = redis.call('ZRANGE', KEYS[1], '-inf', old, 'BYSCORE', 'LIMIT', FORGOTTEN - 1, 1, 'WITHSCORES')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', some[2] or old)
redis.call('ZADD', KEYS[1], as_text(now), ARGV[1])
if ARGV[5] == '1' then
  redis.pcall('HSETNX', KEYS[4], 'cancelled', math.floor(now))
  redis.pcall('HSETNX', KEYS[4], 'c', 'null')
  if redis.call('TTL', KEYS[4]) == -1 then
    redis.call('EXPIRE', KEYS[4], ARGV[4])
  end
end
log_cancel(KEYS[2], KEYS[3], '+' .. ARGV[1])
return redis.call('PUBLISH', ARGV[2], ARGV[3])
