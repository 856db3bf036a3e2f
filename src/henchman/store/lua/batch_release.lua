-- batch_release: let go of jobs that an atomic batch had parked, in their order: into their queues, or nowhere
-- KEYS queues
-- ARGV batch most
-- returns how many are parked still: at most as many are let go as have 4 MB. Of a batch that was
--   aborted, cancelled or invalidated, or has expired, they are cancelled: it did not end well. Jobs with a key meet it
--   now: a duplicate turns out to be no member. An error when a queue refuses one (its key holds something else), which
--   stays parked; the others go.
-- include base
-- include keys
-- include batch
-- include bytes
-- include admit
-- include parked
-- include steps
local id, now, batches = ARGV[1], server_now(), batching()
local facts = key('batch_base') .. id
local parked, jobs = facts .. ':parked', facts .. ':jobs'
local why = redis.call('HGET', facts, 'why') or 'gone'
local size, problem = 0, nil
count_let_go(batches)

local function ask_queue(name)  -- an error, before anything is written, when the job cannot go there
  redis.call('LLEN', key('queue_prefix') .. name)
  redis.call('ZCARD', key('schedule'))
end

local function release(jid, name, due, payload)
  if due == '' then
    redis.call('SADD', KEYS[1], name)
    redis.call('LPUSH', key('queue_prefix') .. name, string.sub(payload, 1, -2) .. ',"enqueued_at":' .. as_moment(now) .. '}')
  else
    redis.call('ZADD', key('schedule'), due, payload)
  end
  batches.track({'track', id, jid, due == '' and 'enqueued' or 'scheduled', '0', '', '{}', ''})
end

local function release_keyed(jid, name, due, payload, ask)
  local job = {jid = jid, key = ask.key, mark = ask.mark, queue = name, due = due, payload = payload, unstamped = true,
    needs = ask.needs, tracked = tracked_later(id, jid)}
  local answer = admit(ask, job, now)
  if string.find(answer, '^C') then
    batches.track({'track', id, jid, due == '' and 'enqueued' or 'scheduled', '0', '', '{}', ''})
  elseif not string.find(answer, '^B') then
    batches.withdraw(id, jid, 'a duplicate of ' .. string.match(answer, '^%u (%S+)'))
    step_is_duplicate(id, ask, answer)
  end
end

for _ = 1, math.min(tonumber(ARGV[2]), redis.call('LLEN', parked)) do
  local row = size < MOST_BYTES and redis.call('LPOP', parked)
  if not row then
    break
  end
  size = size + #row
  local a, b, c, rest = string.match(row, '^(%d+) (%d+) (%d+) (.*)$')
  a, b, c = tonumber(a), tonumber(b), tonumber(c)
  local jid, name, due = string.sub(rest, 1, a), string.sub(rest, a + 1, a + b), string.sub(rest, a + b + 1, a + b + c)
  local payload = string.sub(rest, a + b + c + 1)
  local when, asked = string.match(due, '^([^\n]*)\n?(.*)$')
  local fine, refused = pcall(ask_queue, name)
  if why == '' and not fine then
    redis.call('RPUSH', parked, row)  -- behind the others, which go
    problem = redis.error_reply(in_words(refused))
  elseif why ~= '' then
    batches.no_result(id, jid, 'the batch was not released')
    batches.track({'track', id, jid, 'cancelled', '0', '', '{"reason":"the batch was not released"}', ''})
    local ask = asked ~= '' and cjson.decode(asked)
    if ask and string.find(ask.phases, '[of]') then
      needing().never(ask.scope, ask.key, jid)
    end
  elseif redis.call('HGET', jobs, jid) == 'blocked' and asked == '' then
    release(jid, name, as_due(when, now), payload)
  elseif redis.call('HGET', jobs, jid) == 'blocked' then
    release_keyed(jid, name, as_due(when, now), payload, cjson.decode(asked))
  end
end
batches.flush()
return problem or redis.call('LLEN', parked)
