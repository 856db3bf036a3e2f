-- The fair queue of which this one is a line: its name ends before the first @ or +. Nothing, of any other.
local function whose_line(queue)
  local whose = string.match(queue, '^([%w_:.-]+)[@+]')
  return whose and redis.call('SISMEMBER', key('fair_queues'), whose) == 1 and whose
end

-- So many jobs left a queue otherwise than by a fetch: where it is a line, that is counted (lib/lines.lua).
local function left_line(queue, count)
  local whose = whose_line(queue)
  if whose then
    redis.call('HINCRBY', key('fair_facts') .. whose, 'waiting', -count)
  end
end
