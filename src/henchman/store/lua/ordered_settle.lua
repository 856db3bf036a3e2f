-- ordered_settle: end claims, each id on its own
-- KEYS queues held
-- ARGV queue identity lease_ms collapse day tracked endings (token id)*
-- returns "LOST" when the identity was buried, "TRACKED" as ordered_claim, 1 when all were settled, else one status an id: 1 settled, 0 it was not held under this token any
--   more and nothing was changed, 3 it is held as before, because so much has arrived that the call has to be made again, a text: the row makes no sense or the server refused, it is held as before.
--   verdict: done (what was delivered is gone; the failures of an id that failed before are forgotten), retry (all of it again in delay
--   s, count is the new retry_count, the failed id's time goes before that of what arrived), to_morgue (the lowest payload
--   goes to the morgue, the rest at once with a fresh budget), snooze (again in delay s, nothing counted), release (as
--   if it had not been claimed). endings: for rows one after another that end alike `rows bytes ending`, where bytes is how
--   long the ending is: `verdict delay count error`; nothing stands between one and the next. The token in
--   `busy` is the fence. At most 500 rows, those of one claim together: its place under the ceiling is free with the
--   first of them.
--   tracked: "1" for a queue whose payloads have records, see ordered_claim. Then error is a JSON list of texts: the error,
--   then for the record status, detail (JSON) and attempt; for the morgue also status and detail of what does not go there.
--   Of a run that went well it is "+attempt detail".
-- include base
-- include keys
-- include ordered
-- include ordered_track
-- include stats
local HELD, identity, collapse = KEYS[2], ARGV[2], ARGV[4]
if redis.call('PEXPIRE', key('leases') .. identity, ARGV[3]) == 0 and redis.call('EXISTS', key('tombs_of') .. identity) == 1 then
  return 'LOST'
end
local settings = redis.call('HMGET', meta, 'separator', 'track')
if ARGV[6] == '1' then
  track = tracking()
elseif settings[2] then
  return 'TRACKED'
end
local now, separator, ids = server_now(), settings[1], {}
local before, count = 7, (#ARGV - 7) / 2
for row = 1, count do
  ids[row] = ARGV[before + 2 * row]
end
local records = redis.call('HMGET', busy, unpack(ids))
local rare = redis.call('EXISTS', retry, crash, next_due, open) > 0
local marked = rare and redis.call('EXISTS', retry, crash) > 0
local arrivals, limited = rare and redis.call('EXISTS', next_due) == 1, rare and redis.call('EXISTS', open) == 1
local gone, singles, settled, status, ended = {}, {}, {}, {}, {}  -- what one command at the end does for all
local processed, failed, runs, bad_runs, last, last_bad = 0, 0, 0, 0, nil, false

-- Takes away what was delivered; whether anything is left.
local function drop_delivered(id, delivered)
  if delivered == 0 then
    if arrivals then
      redis.call('HDEL', sole, id)
    else
      singles[#singles + 1] = id
    end
    return false
  end
  redis.call('ZREMRANGEBYRANK', base .. 'p:' .. id, 0, delivered - 1)
  return redis.call('EXISTS', base .. 'p:' .. id) == 1
end

-- Moves the lowest payload to the morgue; whether anything is left.
local function lowest_to_morgue(id, problem)
  local single, score, body = redis.call('HGET', sole, id), nil, nil
  if single then
    score, body = score_of(single), body_of(single)
    redis.call('HDEL', sole, id)
  else
    local lowest = redis.call('ZPOPMIN', base .. 'p:' .. id)
    body, score = lowest[1], lowest[2]
  end
  if body then
    redis.call('ZADD', base .. 'm:' .. id, 'LT', score, body)
    redis.call('ZADD', base .. 'morgue', as_text(now), id)
    redis.call('HSET', base .. 'merr', id, problem)
  end
  return not single and redis.call('EXISTS', base .. 'p:' .. id) == 1
end

-- The id goes on with what is left at `at`; what arrived meanwhile joins, or brings its own time when it is all.
local function go_on(id, left, at)
  local arrived = arrivals and redis.call('ZSCORE', next_due, id)
  if arrived then
    release_arrivals(id, collapse)
    at = left and at or tonumber(arrived)
    left = true
  end
  if not left then
    gone[#gone + 1] = id
    return
  end
  redis.call('ZADD', due, 'XX', as_text(at), id)
  if at <= now or redis.call('ZRANGE', due, 0, 0)[1] == id then
    ring()
  end
end

local function reset_failures(id)
  if marked then
    redis.call('ZREM', retry, id)
    redis.call('HDEL', errors, id)
    redis.call('HDEL', crash, id)
  end
end

local verdicts = {}
function verdicts.done(id, delivered)
  go_on(id, drop_delivered(id, delivered), now)
  reset_failures(id)
  processed = processed + 1
end
function verdicts.retry(id, _, _, delay, count, problem)
  go_on(id, true, now + delay)
  redis.call('ZADD', retry, count, id)
  redis.call('HSET', errors, id, problem)
  redis.call('HDEL', crash, id)
  failed = failed + 1
end
function verdicts.to_morgue(id, _, _, _, _, problem)
  go_on(id, lowest_to_morgue(id, problem), now)
  reset_failures(id)
  failed = failed + 1
end
function verdicts.snooze(id, _, _, delay)
  go_on(id, true, now + delay)
end
function verdicts.release(id, _, was_due)
  go_on(id, true, math.min(tonumber(was_due), now))
end

-- A claim is one run, and a bad one as soon as one of its ids failed.
local function count_run(token, verdict)
  local bad = verdict == 'retry' or verdict == 'to_morgue'
  if bad or verdict == 'done' then
    if token ~= last then
      runs, last, last_bad = runs + 1, token, false
    end
    if bad and not last_bad then
      bad_runs, last_bad = bad_runs + 1, true
    end
  end
end

-- How ids end, from what a row says of it; what makes no sense has no verdict.
local function read(ending)
  local verdict, delay, tries, problem = string.match(ending, '^(%S+) (%S+) (%S+) (.*)$')
  local how = {said = ending, delay = tonumber(delay), tries = tonumber(tries), problem = problem}
  if verdicts[verdict] and how.delay and how.delay == how.delay and how.tries and how.tries == how.tries then
    how.verdict = verdict
  end
  return how
end
local function each_ending(text)  -- how many rows, and how they end
  local at = 1
  return function()
    local _, last, alike, size = string.find(text, '^(%d+) (%d+) ', at)
    if last then
      at = last + 1 + tonumber(size)
      return tonumber(alike), string.sub(text, last + 1, at - 1)
    end
  end
end
local function end_one(token, id, delivered, was_due, how)
  if not how.verdict then  -- before any write
    error({err = 'ERR no such ending: ' .. string.sub(how.said, 1, 100)})
  end
  local problem = how.problem
  if track then
    local told = track.read(problem)
    track.ended(id, delivered, how.verdict, identity, told)
    problem = told[1]
  end
  verdicts[how.verdict](id, delivered, was_due, how.delay, how.tries, problem)
  leave_group(id, separator)
  if limited then
    leave_ceiling(token, identity)
  end
  count_run(token, how.verdict)
end
-- What holds of a single payload of an id that never failed, in a queue without groups, ceiling and records, under which
-- nothing arrived: nearly always. Then all that is done for it is done by the commands at the end.
local simple, clean = not (track or rare or separator and separator ~= ''), {}
local function end_row(row, how)
  local id, token = ids[row], ARGV[before + 2 * row - 1]
  local held_by, delivered, was_due = read_record(records[row])
  local many = arrivals and held_by == token and redis.call('ZSCORE', next_due, id) and not may_release(id, delivered)
  if many and how.verdict then
    return 3
  elseif held_by ~= token or ended[id] then
    return 0
  end
  local fine, problem = pcall(end_one, token, id, delivered, was_due, how)
  if fine then
    ended[id] = true
    settled[#settled + 1] = id
  end
  return fine and 1 or in_words(problem)
end
local row, all_settled = 0, true
for alike, ending in each_ending(ARGV[7]) do
  local how = read(ending)
  local is_plain = simple and how.verdict == 'done'
  for _ = 1, alike do
    row = row + 1
    local id, record, start = ids[row], records[row], ARGV[before + 2 * row - 1] .. '|0|'
    if is_plain and record and not ended[id] and string.find(record, start, 1, true) == 1 then
      ended[id], clean[#clean + 1], status[row] = true, id, 1
      count_run(ARGV[before + 2 * row - 1], 'done')
    else
      status[row] = end_row(row, how)
      all_settled = all_settled and status[row] == 1
    end
  end
end
processed = processed + #clean
local function with_clean(list)
  if #list == 0 then
    return clean
  end
  for _, id in ipairs(clean) do
    list[#list + 1] = id
  end
  return list
end
settled, singles, gone = with_clean(settled), with_clean(singles), with_clean(gone)
if #settled > 0 then
  redis.call('HDEL', HELD, unpack(settled))
  redis.call('HDEL', busy, unpack(settled))
end
if #singles > 0 then
  redis.call('HDEL', sole, unpack(singles))
end
if #gone > 0 then
  redis.call('ZREM', due, unpack(gone))
end

add_to_stat(key('stat_processed'), ARGV[5], runs)
add_to_stat(key('stat_failed'), ARGV[5], bad_runs)
if processed > 0 then
  redis.pcall('HINCRBY', stat, 'processed', processed)
end
if failed > 0 then
  redis.pcall('HINCRBY', stat, 'failed', failed)
end
if track then
  track.done()
end
return all_settled and count > 0 and 1 or status
