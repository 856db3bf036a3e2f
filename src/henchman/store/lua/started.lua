-- started: write down that tracked jobs run, those of them that are in flight where they are said to be
-- KEYS cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped (flight)*flights (own)*
-- ARGV flights (index payload effects)*
-- returns how many; a late word of somebody who lost the job, or has ended it, changes nothing. See lib/effects.lua
-- include now
-- include words
-- include batch
-- include effects
redis.call('ZREM', KEYS[1], '')  -- nothing, but a removal comes first: a full server accepts what follows
local carry_out, count_batches = carrying_out(1, 10 + ARGV[1], true)
local told = 0
for at = 2, #ARGV, 3 do
  if redis.call('LPOS', KEYS[10 + ARGV[at]], ARGV[at + 1]) then
    carry_out(ARGV[at + 1], 'started', ARGV[at + 2])
    told = told + 1
  end
end
count_batches()
return told
