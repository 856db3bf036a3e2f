-- batch_results: a page of what became of the jobs of a batch that keeps results, in the order in which they were pushed
-- KEYS queues
-- ARGV batch first most
-- returns "ABSENT" there is no such batch, "NONE" it keeps no results, or {count, {name, number, ...}, {row, text, ...}}:
--   how many rows it has; the names of its jobs, each with its number; rows from first on, at most most, or as many as
--   reach 4 MB. A row is the number of its job's name and its jid; its text is what the effect step_result wrote, or "?"
--   and the status of a member that has not ended; "?" alone: it ended, and nothing is known of that.
-- include keys
-- include bytes
local SOME = 32  -- results that are read at once: each has 64 kB at most
local facts, first, most = key('batch_base') .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local known, job_names, keeps_results = redis.call('HGETALL', facts), {}, false
if #known == 0 then
  return 'ABSENT'
end
for at = 1, #known, 2 do
  local name = string.match(known[at], '^job:(.*)$')
  if name then
    job_names[#job_names + 1], job_names[#job_names + 2] = name, known[at + 1]
  elseif known[at] == 'results' then
    keeps_results = known[at + 1] == '1'
  end
end
if not keeps_results then
  return 'NONE'
end

local rows = redis.call('LRANGE', facts .. ':rows', first, first + most - 1)
local page, size = {}, 0
for from = 1, #rows, SOME do
  if size >= MOST_BYTES then
    break
  end
  local jids = {}
  for at = from, math.min(from + SOME - 1, #rows) do
    jids[#jids + 1] = string.match(rows[at], '^%d+ (.*)$')
  end
  for place, text in ipairs(redis.call('HMGET', facts .. ':results', unpack(jids))) do
    if size < MOST_BYTES then
      text = text or '?' .. (redis.call('HGET', facts .. ':jobs', jids[place]) or '')
      page[#page + 1], page[#page + 2] = rows[from + place - 1], text
      size = size + #text
    end
  end
end
return {redis.call('LLEN', facts .. ':rows'), job_names, page}
