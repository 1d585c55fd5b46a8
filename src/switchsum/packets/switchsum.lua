-- Wireshark and tshark dissector of switchsum's frames (docs/packets.md says how to install it).
--
-- Fields are `switchsum.NAME`; lanes are numbers of their format. What the switch reports (overflow, mismatch, a
-- refusal) and what does not fit is expert information, `switchsum.expert.NAME`.

-- Generated from protocol/switchsum_protocol/frame.py by tools/frame_tables.py
local WIRE_VERSION, AGGREGATION_PORT = 4, 21333
local HEADER_BYTES, NO_BLOCK = 48, 4294967295
local KINDS = {
  [1] = "contribution",
  [2] = "result",
  [3] = "held",
  [4] = "reject",
  [5] = "hello",
  [6] = "query",
  [7] = "set",
  [8] = "state",
}
local OPERATORS = {
  [1] = "sum",
  [2] = "max",
  [3] = "min",
  [4] = "or",
}
local FORMATS = {
  [1] = "int32",
  [2] = "int16",
  [3] = "int8",
  [4] = "int64",
  [7] = "widened",
  [8] = "nibbles",
}
local LANES = { -- by format: bits of a lane, and of what a contribution may have for one
  [1] = { bits = 32, value_bits = 32 },
  [2] = { bits = 16, value_bits = 16 },
  [3] = { bits = 8, value_bits = 8 },
  [4] = { bits = 64, value_bits = 64 },
  [7] = { bits = 16, value_bits = 8 },
  [8] = { bits = 8, value_bits = 4 },
}
local REASONS = {
  [0] = "none",
  [1] = "truncated",
  [2] = "length",
  [3] = "version",
  [4] = "kind",
  [5] = "operator",
  [6] = "format",
  [7] = "checksum",
  [8] = "not_admitted",
  [9] = "slot",
  [10] = "padding",
  [11] = "stale",
  [12] = "held",
  [13] = "repeated",
  [14] = "mismatch",
  [15] = "overflow",
  [16] = "spoofed",
  [17] = "unknown_destination",
  [18] = "lost_ingress",
  [19] = "lost_egress",
  [20] = "contributed",
  [21] = "completed",
  [22] = "cookie",
  [23] = "spoofed_inside",
  [24] = "opaque",
  [25] = "taken",
}
local FLAGS = { -- value, name
  { 1, "payload" },
  { 2, "overflow" },
  { 4, "mismatch" },
  { 8, "mark" },
  { 16, "repeat" },
  { 32, "final" },
  { 64, "recall" },
  { 128, "select" },
}
local HEADER = { -- name, offset, bytes
  { "version", 0, 1 },
  { "kind", 1, 1, names = KINDS },
  { "operator", 2, 1, names = OPERATORS },
  { "format", 3, 1, names = FORMATS },
  { "flags", 4, 1, hexadecimal = true },
  { "reason", 5, 1, names = REASONS },
  { "exponent", 6, 1 },
  { "next_exponent", 7, 1 },
  { "job", 8, 2 },
  { "epoch", 10, 2 },
  { "rank", 12, 2 },
  { "tree", 14, 2 },
  { "slot", 16, 4 },
  { "number", 20, 4 },
  { "block", 24, 4, none = 4294967295 },
  { "next_block", 28, 4, none = 4294967295 },
  { "digest", 32, 4, hexadecimal = true },
  { "bitmap", 36, 4, hexadecimal = true },
  { "cookie", 40, 8, hexadecimal = true },
}
local PAYLOADS = { [512] = true, [1024] = true, [8192] = true }
local NARROWS = { [256] = true, [512] = true, [4096] = true }
local PADDINGS = { [512] = true, [7680] = true }
-- End of what is generated

local switchsum = Proto("switchsum", "switchsum in-network allreduce")

local TYPES = { [1] = ftypes.UINT8, [2] = ftypes.UINT16, [4] = ftypes.UINT32, [8] = ftypes.UINT64 }
local LANE_TYPES = { [8] = ftypes.INT8, [16] = ftypes.INT16, [32] = ftypes.INT32, [64] = ftypes.INT64 }

local fields = {}
for _, row in ipairs(HEADER) do
  local name, bytes = row[1], row[3]
  local shown = row.hexadecimal and base.HEX or base.DEC
  fields[name] = ProtoField.new(name:gsub("_", " "), "switchsum." .. name, TYPES[bytes], row.names, shown)
end
for _, flag in ipairs(FLAGS) do
  fields["flags." .. flag[2]] = ProtoField.bool("switchsum.flags." .. flag[2], flag[2], 8, nil, flag[1])
end
for format, lane in pairs(LANES) do
  local name = "lane." .. FORMATS[format]
  fields[name] = ProtoField.new("lane", "switchsum." .. name, LANE_TYPES[lane.bits])
end
fields.padding = ProtoField.bytes("switchsum.padding", "padding")
switchsum.fields = fields

local function expert_info(name, text, group, severity)
  return ProtoExpert.new("switchsum.expert." .. name, text, expert.group[group], expert.severity[severity])
end

local experts = {
  short = expert_info("short", "shorter than the header", "MALFORMED", "ERROR"),
  version = expert_info("version", "another wire version", "PROTOCOL", "ERROR"),
  length = expert_info("length", "no build of the program has a payload of this length", "MALFORMED", "ERROR"),
  reject = expert_info("reject", "the switch refused a contribution", "RESPONSE_CODE", "ERROR"),
  mismatch = expert_info("mismatch", "members contributed different operations", "PROTOCOL", "ERROR"),
  overflow = expert_info("overflow", "a partial sum overflowed its lane", "PROTOCOL", "WARN"),
  mark = expert_info("mark", "congestion was met on the way", "SEQUENCE", "NOTE"),
  ["repeat"] = expert_info("repeat", "sent before", "SEQUENCE", "NOTE"),
  held = expert_info("held", "the switch has this contribution already and waits for others", "SEQUENCE", "NOTE"),
}
switchsum.experts = experts

local function add_header(tree, buffer)
  local values = {}
  for _, row in ipairs(HEADER) do
    local name, range = row[1], buffer(row[2], row[3])
    values[name] = row[3] <= 4 and range:uint() or range:uint64()
    local item = tree:add(fields[name], range)
    if name == "flags" then
      for _, flag in ipairs(FLAGS) do
        item:add(fields["flags." .. flag[2]], range)
        values[flag[2]] = bit.band(values.flags, flag[1]) ~= 0
      end
    elseif row.none and values[name] == row.none then
      item:append_text(" (none)")
    end
  end
  return values
end

-- A worker's contribution has half of each lane; what a switch sends up, whose port is the service's, has all.
local function is_narrow(length, values, port)
  local lane = LANES[values.format]
  return KINDS[values.kind] == "contribution" and lane and lane.value_bits < lane.bits and NARROWS[length]
    and port ~= AGGREGATION_PORT
end

-- As many bits as a lane has are for two lanes: the upper half is for lane j, the lower one for half the lanes on.
local function add_narrow(tree, buffer, format)
  local length, bits, half = buffer:len(), LANES[format].bits, LANES[format].value_bits
  local lanes = tree:add(switchsum, buffer(), string.format("%d lanes that the switch widens", 8 * length / half))
  for first = 0, half, half do
    for at = 0, length - 1, bits / 8 do
      local range = buffer(at, bits / 8)
      local value = range:bitfield(first, half)
      value = value < 2 ^ (half - 1) and value or value - 2 ^ half
      range = half < 8 and range or buffer(at + first / 8, half / 8)
      lanes:add(fields["lane." .. FORMATS[format]], range, value)
    end
  end
end

local function add_payload(tree, buffer, values, port)
  local length, format = buffer:len(), values.format
  if values.payload and is_narrow(length, values, port) then
    add_narrow(tree, buffer, format)
  elseif values.payload then
    if not PAYLOADS[length] then
      tree:add_proto_expert_info(experts.length)
    end
    if LANES[format] then
      local bytes, name = LANES[format].bits / 8, FORMATS[format]
      local lanes = tree:add(switchsum, buffer(), string.format("%d lanes of %s", math.floor(length / bytes), name))
      for at = 0, length - bytes, bytes do
        lanes:add(fields["lane." .. name], buffer(at, bytes))
      end
    end
  elseif length > 0 then
    tree:add(fields.padding, buffer())
    if not PADDINGS[length] then
      tree:add_proto_expert_info(experts.length)
    end
  end
end

local function add_experts(tree, values, kind)
  if values.version ~= WIRE_VERSION then
    tree:add_proto_expert_info(experts.version, "wire version " .. values.version .. ", not " .. WIRE_VERSION)
  end
  if kind == "reject" then
    tree:add_proto_expert_info(experts.reject, "refused: " .. (REASONS[values.reason] or values.reason))
  elseif kind == "held" then
    tree:add_proto_expert_info(experts.held)
  end
  for _, flag in ipairs(FLAGS) do
    if values[flag[2]] and experts[flag[2]] then
      tree:add_proto_expert_info(experts[flag[2]])
    end
  end
end

local function describe(values, kind)
  local words = { kind or ("kind " .. values.kind) }
  if kind == "reject" then
    words[1] = words[1] .. " (" .. (REASONS[values.reason] or values.reason) .. ")"
  end
  words[#words + 1] = string.format("job %d.%d rank %d", values.job, values.epoch, values.rank)
  if kind ~= "hello" then
    words[#words + 1] = string.format("slot %d number %d block %d", values.slot, values.number, values.block)
    words[#words + 1] = values.next_block == NO_BLOCK and "next none" or ("next " .. values.next_block)
  end
  for _, flag in ipairs(FLAGS) do
    if values[flag[2]] then
      words[#words + 1] = "[" .. flag[2] .. "]"
    end
  end
  return table.concat(words, " ")
end

function switchsum.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "switchsum"
  local tree = root:add(switchsum, buffer())
  if buffer:len() < HEADER_BYTES then
    tree:add_proto_expert_info(experts.short)
    return buffer:len()
  end
  local values = add_header(tree, buffer)
  local kind = KINDS[values.kind]
  local text = describe(values, kind)
  pinfo.cols.info = text
  tree:append_text(", " .. text)
  add_experts(tree, values, kind)
  if buffer:len() > HEADER_BYTES then
    add_payload(tree, buffer(HEADER_BYTES):tvb(), values, pinfo.src_port)
  end
  return buffer:len()
end

-- Frames of the controller's port: in the switch's captures they have a link type of their own, for they begin with two
-- bytes that say which port a packet-in came from, or a packet-out goes to.
local controller = Proto("switchsum_controller", "switchsum packet-in or packet-out")
controller.fields.port = ProtoField.uint16("switchsum_controller.port", "Port", base.DEC, nil, 0xff80)

function controller.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "switchsum"
  if buffer:len() < 2 then
    return buffer:len()
  end
  local tree = root:add(controller, buffer(0, 2))
  tree:add(controller.fields.port, buffer(0, 2))
  Dissector.get("eth_withoutfcs"):call(buffer(2):tvb(), pinfo, root)
  return buffer:len()
end

DissectorTable.get("wtap_encap"):add((wtap_encaps or wtap).USER0, controller)

switchsum.prefs.port = Pref.uint("UDP port", AGGREGATION_PORT, "Where the switch listens (switchsum switch --udp)")

local registered = AGGREGATION_PORT
local ports = DissectorTable.get("udp.port")
ports:add(registered, switchsum)
function switchsum.prefs_changed()
  ports:remove(registered, switchsum)
  registered = switchsum.prefs.port
  ports:add(registered, switchsum)
end
