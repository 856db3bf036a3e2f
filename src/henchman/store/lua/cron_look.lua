-- cron_look: once a second and process: who ticks, what time is it, has anything changed
-- KEYS queues
-- ARGV identity lease_ms fresh handled (name)*
-- returns {number of crons, 1 when this process ticks, server's now, seen, revision, number of given names that are
--   not there, retired names}. The names are those that this process declares in code; retired is what nobody has
--   declared for fresh seconds. handled is the time until which the leader has dealt with every tick, or empty; seen
--   is the last one that any leader gave. Nobody leads where there is no cron. lease_ms 0: lead no more. Times in the
--   future are from before the clock went back: those crons go on from now, in a new revision.
-- include base
-- include keys
-- include lead
local leader, crons, declared = key('cron_leader'), key('crons'), key('cron_declared')
local revision, now = key('cron_revision'), server_now()
local count = redis.call('HLEN', crons)
local led = redis.call('GET', leader) == ARGV[1]
local mine = lead(leader, ARGV[1], count > 0 and ARGV[2] or '0') or (led and count > 0)
local function rebase(times)
  local ahead = redis.call('ZRANGEBYSCORE', times, as_text(now + 1), '+inf')
  for _, name in ipairs(ahead) do
    redis.call('ZADD', times, as_text(now), name)
  end
  return #ahead
end
if mine then
  rebase(declared)
  if rebase(key('cron_ticks')) > 0 then
    redis.call('INCR', revision)
  end
end
local lost = 0
for at = 5, #ARGV do
  if redis.call('HEXISTS', crons, ARGV[at]) == 0 then
    lost = lost + 1
  else
    redis.pcall('ZADD', declared, as_text(now), ARGV[at])
  end
end
local seen = redis.call('GET', key('cron_seen')) or ''
if mine and ARGV[4] ~= '' then
  redis.call('SET', key('cron_seen'), ARGV[4])
end
local retired = redis.call('ZRANGEBYSCORE', declared, '-inf', as_text(now - tonumber(ARGV[3])))
return {count, mine and 1 or 0, as_text(now), seen, redis.call('GET', revision) or '0', lost, retired}
