-- iterate: write down where an iterable job stands, and tell whether it was cancelled
-- KEYS iteration flight
-- ARGV executions cursor run_time keep_s payload
-- returns 1 cancelled; 0 not; -1 the job is not in flight there any more, or a later execution has written already, and
--   nothing was changed: a process that was taken for dead must not send the job back to where it was, nor bring back
--   what went with its end. The fields are Sidekiq's (wire format, section 16).
if not redis.call('LPOS', KEYS[2], ARGV[5]) or (tonumber(redis.call('HGET', KEYS[1], 'ex')) or 0) > tonumber(ARGV[1]) then
  return -1
end
redis.call('HSET', KEYS[1], 'ex', ARGV[1], 'c', ARGV[2], 'rt', ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return redis.call('HEXISTS', KEYS[1], 'cancelled')
