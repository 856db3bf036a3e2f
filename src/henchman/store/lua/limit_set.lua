-- limit_set: how large a limit is from now on
-- KEYS queues
-- ARGV name n per
-- returns how it was, "<kind> <n> <per> <n> <per>", or an empty text when there is no limit of this name; per: "" as it was
-- include keys
local before = redis.call('HGET', key('limits'), ARGV[1])
if not before then
  return ''
end
local kind, _, per, code = string.match(before, '^(%l) (%S+) (%S+) (.*)$')
if kind then
  redis.call('HSET', key('limits'), ARGV[1],
    kind .. ' ' .. ARGV[2] .. ' ' .. (ARGV[3] ~= '' and kind ~= 'c' and ARGV[3] or per) .. ' ' .. code)
end
return before
