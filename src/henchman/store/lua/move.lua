-- move: take entries out of a sorted set and put each where it goes next: into its queue, into the dead set, nowhere
-- KEYS source dead cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped (queue)*targets (own)*
-- ARGV dead_max dead_timeout targets (index name old new effects)*
-- returns one status an entry: 1 moved, 0 it was not there any more, a text: the server refused, it is where it was.
--   index 0 is the dead set, -1 nowhere, -2 the dead of the batch called name, -3 the same set again (old, due name
--   seconds from the server's now), else the number of the queue in KEYS. ZREM is the fence: of two that move the same
--   entry, one succeeds. Effects are those of a job that ends here, see lib/effects.lua.
-- include now
-- include bury_payload
-- include words
-- include batch
-- include effects
local now = server_now()
local status = {}
local carry_out = carrying_out(3, 12 + ARGV[3])

local function place(index, name, old, payload)
  if index > 0 then
    redis.call('SADD', KEYS[8], name)
    redis.call('LPUSH', KEYS[12 + index], payload)
  elseif index == -3 then
    redis.call('ZADD', KEYS[1], as_text(now + tonumber(name)), old)
  elseif index == -2 and redis.call('EXISTS', KEYS[6] .. name) == 1 then
    redis.call('ZADD', KEYS[6] .. name .. ':dead', as_text(now), payload)
  elseif index ~= -1 then
    to_dead(KEYS[2], payload, now, tonumber(ARGV[1]), tonumber(ARGV[2]))
  end
end

for entry = 1, (#ARGV - 3) / 5 do
  local at = 5 * entry - 2
  local old = ARGV[at + 3]
  local score = redis.call('ZSCORE', KEYS[1], old)
  status[entry] = redis.call('ZREM', KEYS[1], old)
  if status[entry] == 1 then
    local fine, problem = pcall(place, tonumber(ARGV[at + 1]), ARGV[at + 2], old, ARGV[at + 4])
    if not fine then
      redis.call('ZADD', KEYS[1], score, old)
      status[entry] = in_words(problem)
    elseif ARGV[at + 5] ~= '' then
      carry_out(old, ARGV[at + 1] == '0' and 'dead' or 'deleted', ARGV[at + 5])
    end
  end
end
return status
