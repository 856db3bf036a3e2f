-- note: write down what became of tracked jobs without their end: started, progress, messages, given back
-- KEYS cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped (own)*
-- ARGV (effects)*
-- returns how many; see lib/effects.lua
-- include now
-- include words
-- include batch
-- include effects
redis.call('ZREM', KEYS[1], '')  -- nothing, but a removal comes first: a full server accepts what follows
local carry_out, count_batches = carrying_out(1, 10, true)
for _, text in ipairs(ARGV) do
  carry_out('', 'noted', text)
end
count_batches()
return #ARGV
