-- note: write down what became of tracked jobs without their end: started, progress, messages, given back
-- KEYS queues
-- ARGV (effects)*
-- returns how many; see lib/effects.lua
-- include base
-- include keys
-- include effects
redis.call('ZREM', key('cancelled'), '')  -- no-op write: after a removal a full server accepts the writes that follow
for _, text in ipairs(ARGV) do
  carry_out('', 'noted', text)
end
finish_effects()
return #ARGV
