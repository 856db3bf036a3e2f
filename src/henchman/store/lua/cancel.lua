-- cancel: write a jid down as cancelled and tell every process
-- KEYS queues
-- ARGV jid channel message keep_s is_job
-- returns how many processes heard it. Workers compare the counter with every fetch and read the log when it moved.
--   is_job is 0 for a batch, 1 for a job: an iterable one also finds its flag, in Ruby too (wire format, section 16);
--   c is written with it, because a Ruby worker that finds the flag alone fails at every attempt instead of cancelling.
-- include base
-- include keys
-- include cancel_log
local FORGOTTEN = 100  -- old marks that one call removes
local now, cancelled, state = server_now(), key('cancelled'), key('iteration') .. ARGV[1]
local old = as_text(now - tonumber(ARGV[4]))
local some = redis.call('ZRANGE', cancelled, '-inf', old, 'BYSCORE', 'LIMIT', FORGOTTEN - 1, 1, 'WITHSCORES')
redis.call('ZREMRANGEBYSCORE', cancelled, '-inf', some[2] or old)
redis.call('ZADD', cancelled, as_text(now), ARGV[1])
if ARGV[5] == '1' then
  redis.pcall('HSETNX', state, 'cancelled', math.floor(now))
  redis.pcall('HSETNX', state, 'c', 'null')
  if redis.call('TTL', state) == -1 then
    redis.call('EXPIRE', state, ARGV[4])
  end
end
if redis.call('HEXISTS', key('parked'), ARGV[1]) == 1 then  -- nobody fetches it: the stager ends it
  redis.pcall('RPUSH', key('decide'), 'cancel\n' .. ARGV[1] .. '\n0\n\n')
end
log_cancel('+' .. ARGV[1])
return redis.call('PUBLISH', ARGV[2], ARGV[3])
