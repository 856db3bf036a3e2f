-- cron_remove: forget a cron and what it did
-- KEYS queues
-- ARGV name fresh control
-- returns 1 removed, 0 there was none, -1 a worker has declared it within the last fresh seconds: nothing was done
-- include base
-- include keys
local name = ARGV[1]
local declared = redis.call('ZSCORE', key('cron_declared'), name)
if declared and tonumber(declared) > server_now() - tonumber(ARGV[2]) then
  return -1
end
local removed = redis.call('HDEL', key('crons'), name)
redis.call('ZREM', key('cron_ticks'), name)
redis.call('ZREM', key('cron_declared'), name)
redis.call('SREM', key('cron_paused'), name)
redis.call('HDEL', key('cron_pauses'), name)
redis.call('DEL', key('cron_past') .. name)
redis.call('HDEL', key('cron_running'), name)
redis.call('HDEL', key('cron_skipped'), name)
if removed == 1 then
  redis.call('INCR', key('cron_revision'))
  redis.call('PUBLISH', ARGV[3], 'crons')
end
return removed
