-- cron_remove: forget a cron and what it did
-- KEYS crons cron_ticks cron_declared cron_paused cron_revision cron_past cron_running cron_skipped
-- ARGV name fresh control
-- returns 1 removed, 0 there was none, -1 a worker has declared it within the last fresh seconds: nothing was done
-- include now
local declared = redis.call('ZSCORE', KEYS[3], ARGV[1])
if declared and tonumber(declared) > server_now() - tonumber(ARGV[2]) then
  return -1
end
local removed = redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('DEL', KEYS[6])
redis.call('HDEL', KEYS[7], ARGV[1])
redis.call('HDEL', KEYS[8], ARGV[1])
if removed == 1 then
  redis.call('INCR', KEYS[5])
  redis.call('PUBLISH', ARGV[3], 'crons')
end
return removed
