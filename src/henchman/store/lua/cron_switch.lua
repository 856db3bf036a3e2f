-- cron_switch: pause a cron, or let it go on
-- KEYS crons cron_ticks cron_paused cron_revision
-- ARGV name verb control
-- returns 1 done, 0 it was so already, -1 there is no such cron. verb is "pause" or "resume"; what was planned while
--   it was paused is not missed.
-- include now
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return -1
end
local done
if ARGV[2] == 'pause' then
  done = redis.call('SADD', KEYS[3], ARGV[1])
else
  done = redis.call('SREM', KEYS[3], ARGV[1])
  local now = server_now()
  local last = redis.call('ZSCORE', KEYS[2], ARGV[1])
  if done == 1 and (not last or tonumber(last) < now) then
    redis.call('ZADD', KEYS[2], as_text(now), ARGV[1])
  end
end
if done == 1 then
  redis.call('INCR', KEYS[4])
  redis.call('PUBLISH', ARGV[3], 'crons')
end
return done
