-- fair_take_in: take jobs from the list of a fair queue into the lines of their tenants, a thousand or 4 MB at most
-- KEYS queues
-- ARGV queue
-- returns how many the list holds that have yet to be taken in. The first write is a removal: a full server accepts it.
-- include keys
-- include lines
redis.call('HDEL', key('fair_facts') .. ARGV[1], '')
local lines = lines_of(ARGV[1])
lines.take_in()
return lines.finish()
