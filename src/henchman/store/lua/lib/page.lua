-- Up to `most` entries, or as many as reach 4 MB but at least `least`, of what `read(place, many)` gives: `many` entries
-- from a place on, each as `width` values. Neither a list nor a set tells how large its entries are: few are read at once.
-- `size`: the bytes that the call has had before; `at_once`: entries read at once, of lists in the midst of which each read
-- takes long. The page, how many entries it has, and the bytes with it.
-- include bytes
local function page_of(read, most, least, width, size, at_once)
  local page, count, step, largest = {}, 0, 1, 1
  size = size or 0
  while count < most and (size < MOST_BYTES or count < least) do
    local some = read(count, step)
    for at = 1, #some, width do
      if size >= MOST_BYTES and count >= least then
        return page, count, size
      end
      for value = at, at + width - 1 do
        page[#page + 1] = some[value]
      end
      count, size, largest = count + 1, size + #some[at], math.max(largest, #some[at])
    end
    if #some < step * width then
      break
    end
    step = math.max(1, math.min(most - count, 2 * step, at_once or AT_ONCE, math.floor((MOST_BYTES - size) / largest)))
  end
  return page, count, size
end
