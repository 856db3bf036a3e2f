-- cron_switch: pause a cron, or let it go on
-- KEYS queues
-- ARGV name verb control note
-- returns 1 done, 0 it was so already, -1 there is no such cron. verb is "pause" or "resume"; what was planned while
--   it was paused is not missed. note: of a pause who, when and why (JSON); the newest stands.
-- include base
-- include keys
local name, paused, ticks = ARGV[1], key('cron_paused'), key('cron_ticks')
if redis.call('HEXISTS', key('crons'), name) == 0 then
  return -1
end
local done
if ARGV[2] == 'pause' then
  done = redis.call('SADD', paused, name)
  redis.call('HSET', key('cron_pauses'), name, ARGV[4])
else
  done = redis.call('SREM', paused, name)
  redis.call('HDEL', key('cron_pauses'), name)
  local now = server_now()
  local last = redis.call('ZSCORE', ticks, name)
  if done == 1 and (not last or tonumber(last) < now) then
    redis.call('ZADD', ticks, as_text(now), name)
  end
end
if done == 1 then
  redis.call('INCR', key('cron_revision'))
  redis.call('PUBLISH', ARGV[3], 'crons')
end
return done
