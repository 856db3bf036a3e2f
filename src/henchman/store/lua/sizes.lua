-- sizes: how many entries each of these lists and hashes holds
-- KEYS (list)*
-- ARGV (kind)*
-- returns one number each; kind is list or hash
local sizes = {}
for i, kind in ipairs(ARGV) do
  sizes[i] = kind == 'hash' and redis.call('HLEN', KEYS[i]) or redis.call('LLEN', KEYS[i])
end
return sizes
