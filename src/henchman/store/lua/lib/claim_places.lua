-- The start of jobs that need places alone, all of them the same ones: they are looked at, and taken, together. Who finds
-- none may wait in flight, behind the jobs of its own process that have theirs, and is handed one as those end
-- (lib/place_ends.lua): a member of `behind` until its own end. Nobody passes who has waited longer: where there is a
-- line, those at its front are drawn to wait so, and who comes stands at its end.
-- include bytes
local MOST_DRAWN = 500
local behind_left  -- how many more may come to wait behind, in all

-- How many places are free of all limits; the first of those that have least.
local function room_of(limits)
  local room, narrowest
  for _, one in ipairs(limits) do
    local places_key = key('slots') .. one[2] .. ':' .. one[3]
    local free = limits_of_call.size(one) - redis.call('HLEN', places_key)
    if not room or free < room then
      room, narrowest = free, one
    end
  end
  return room, narrowest
end

local function is_line_for(limits)
  for _, one in ipairs(limits) do
    local waiting_line = key('awaits') .. limits_of_call.line(one)
    if redis.call('EXISTS', waiting_line) == 1 then
      return true
    end
  end
end

-- Apart: who starts, `fresh` those of them that had no place before, and who finds none. Who has some of several places
-- is judged alone.
local function told_apart(head, jobs, room)
  local counts, jids = {}, {}
  for at, job in ipairs(jobs) do
    jids[at] = job.jid
  end
  for _, one in ipairs(head.limits) do
    local places_key = key('slots') .. one[2] .. ':' .. one[3]
    for at, value in ipairs(redis.call('HMGET', places_key, unpack(jids))) do
      counts[at] = (counts[at] or 0) + (value and 1 or 0)
    end
  end
  if redis.call('EXISTS', key('behind')) == 1 then
    redis.call('SREM', key('behind'), unpack(jids))
  end
  local starting, fresh, others = {}, {}, {}
  for at, job in ipairs(jobs) do
    if counts[at] == #head.limits then
      starting[#starting + 1] = job
    elseif counts[at] > 0 then
      answers[job.place] = claim_limited(job)
    elseif #fresh < room then
      starting[#starting + 1], fresh[#fresh + 1] = job, job
    else
      others[#others + 1] = job
    end
  end
  return starting, fresh, others
end

local function take_places(head, fresh, token)
  local fields, now = {}, as_text(server_now())
  for at, job in ipairs(fresh) do
    fields[2 * at - 1], fields[2 * at] = job.jid, token + at .. ' ' .. now
  end
  for _, one in ipairs(#fields > 0 and head.limits or {}) do
    local places_key, taken_key = key('slots') .. one[2] .. ':' .. one[3], key('limited') .. one[2]
    redis.call('HSET', places_key, unpack(fields))
    redis.call('SADD', taken_key, one[3])
  end
end

local pair_of_queue
local function list_of(queue)
  if not pair_of_queue then
    pair_of_queue = {}
    for pair = 1, (#KEYS - 3) / 2 do
      pair_of_queue[string.sub(KEYS[3 + 2 * pair], #key('queue_prefix') + 1)] = pair
    end
  end
  return pair_of_queue[queue]
end

-- The first of a line who want these places, are plain, and lie in queues that are asked for: their jids, and for each
-- list their payloads.
local function first_of_line(head, most)
  local waiting_line = key('awaits') .. limits_of_call.line(head.limits[1])
  local jids, by_pair, came, room = redis.call('ZRANGE', waiting_line, 0, most - 1), {}, {}, MOST_BYTES
  for at, row in ipairs(#jids > 0 and redis.call('HMGET', key('parked'), unpack(jids)) or {}) do
    local queue, text, payload = string.match(row or '', '^([^\n]*)\n\nlimit %S+ %S+ %d ([^\n]*)\n\n({.*)$')
    local pair = queue and text == head.limits_text and list_of(queue)
    if not pair or #payload > room then
      break
    end
    local payloads = by_pair[pair] or {}
    by_pair[pair], payloads[#payloads + 1], came[at], room = payloads, payload, jids[at], room - #payload
  end
  return came, by_pair
end

-- The first of the line come into our lists, to wait behind those that have their places.
local function draw(head, most)
  local came, by_pair = first_of_line(head, most)
  if #came == 0 then
    return
  end
  local token = redis.call('INCRBY', key('token'), #came) - #came
  behind_left = behind_left - #came
  for pair, payloads in pairs(by_pair) do
    redis.call('LPUSH', KEYS[2 + 2 * pair], unpack(payloads))
    for _, payload in ipairs(payloads) do
      token = token + 1
      drawn[#drawn + 1] = {8, pair, payload, token}
    end
  end
  redis.call('SADD', key('behind'), unpack(came))
  redis.call('HDEL', key('parked'), unpack(came))
  redis.call('ZREM', key('parked_until'), unpack(came))
  local line = limits_of_call.line(head.limits[1])
  local waiting_line = key('awaits') .. line
  redis.call('ZREM', waiting_line, unpack(came))
  if redis.call('EXISTS', waiting_line) == 0 then
    redis.call('ZREM', key('doubt'), doubt_of(line))
  end
end

local function claim_places(head, jobs)
  local limits = head.limits
  local room, narrowest = room_of(limits)
  local starting, fresh, others = told_apart(head, jobs, room)
  behind_left = behind_left or head.behind
  head.holds = head.holds or #starting > 0  -- also for those that are looked at after these
  local may = head.holds and room >= 0 and behind_left or 0
  local is_line = (may > 0 or #others > 0) and is_line_for(limits)
  if is_line and may > 0 and #limits == 1 then
    draw(head, math.min(may, MOST_DRAWN))
    may, is_line = behind_left, is_line_for(limits)
  end
  local behind = is_line and 0 or math.min(may, #others)
  local token = #starting + behind
  token = token > 0 and redis.call('INCRBY', key('token'), token) - token
  take_places(head, fresh, token)
  for at, job in ipairs(starting) do
    answers[job.place] = {1, token + at, ''}
  end
  local marks = {}
  for at = 1, behind do
    local job = others[at]
    answers[job.place], marks[at] = {7, token + #starting + at}, job.jid
  end
  if behind > 0 then
    behind_left = behind_left - behind
    redis.call('SADD', key('behind'), unpack(marks))
  end
  for at = behind + 1, #others do
    local fine, answer = pcall(wait_for_place, others[at], narrowest)
    answers[others[at].place] = fine and answer or in_words(answer)
  end
end
