-- started: write down that tracked jobs run, those of them that are in flight where they are said to be
-- KEYS queues (flight)*
-- ARGV (index payload effects)*
-- returns how many; the late word of a process that lost the job, or has ended it, changes nothing. See lib/effects.lua
-- include base
-- include keys
-- include effects
redis.call('ZREM', key('cancelled'), '')  -- no-op write: after a removal a full server accepts the writes that follow
local in_flight = 0
for at = 1, #ARGV, 3 do
  local flight = KEYS[1 + ARGV[at]]
  if redis.call('LPOS', flight, ARGV[at + 1]) then
    carry_out(ARGV[at + 1], 'started', ARGV[at + 2])
    in_flight = in_flight + 1
  end
end
finish_effects()
return in_flight
