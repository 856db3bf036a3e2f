-- fair_declare: make a queue known as fair
-- KEYS queues
-- ARGV queue (job place)*
-- returns 1, or 0 when it is an ordered queue. place is that of the argument, from 0, which is the tenant of a job whose
--   payload does not say it, as those of other programs.
-- include keys
if redis.call('SISMEMBER', key('ordered_queues'), ARGV[1]) == 1 then
  return 0
end
redis.call('SADD', key('fair_queues'), ARGV[1])
for at = 2, #ARGV, 2 do
  redis.call('HSET', key('fair_facts') .. ARGV[1], 'by:' .. ARGV[at], ARGV[at + 1])
end
return 1
