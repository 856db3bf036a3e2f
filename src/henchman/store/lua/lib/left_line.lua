-- So many jobs left a queue otherwise than by a fetch: where it is the line of a fair one, whose name ends before the
-- first @ or +, that is counted (lib/lines.lua).
local function left_line(queue, count)
  local whose = string.match(queue, '^([%w_:.-]+)[@+]')
  if whose and redis.call('SISMEMBER', key('fair_queues'), whose) == 1 then
    redis.call('HINCRBY', key('fair_facts') .. whose, 'waiting', -count)
  end
end
