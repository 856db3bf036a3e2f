-- limit_declare: what the code of a worker says of limits; what was changed by hand stays as it is
-- KEYS queues
-- ARGV (kind name n per)*
-- returns the names of those that have another size from now on
-- include keys
local changed = {}
for at = 1, #ARGV, 4 do
  local kind, name, n, per = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local before = redis.call('HGET', key('limits'), name) or ''
  local old_kind, old_n, old_per, code_n, code_per = string.match(before, '^(%l) (%S+) (%S+) (%S+) (%S+)$')
  local said = string.format('%d %.17g', n, per)
  local by_hand = old_kind == kind and (old_n ~= code_n or old_per ~= code_per)
  local now = kind .. ' ' .. (by_hand and old_n .. ' ' .. old_per or said) .. ' ' .. said
  if now ~= before then
    redis.call('HSET', key('limits'), name, now)
    if before ~= '' and not by_hand then
      changed[#changed + 1] = name
    end
  end
end
return changed
