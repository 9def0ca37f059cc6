import { BlockList, isIPv4, isIPv6 } from "node:net";

/**
 * Networks in which a caller's URL must not make us call: our own machines, our neighbours, clouds' metadata.
 */
const privateNetworks = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  // Azure's metadata and agents, at every machine there, in a range that is public otherwise.
  "168.63.129.16/32",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
  "::/128",
  "::1/128",
  "::ffff:0:0:0/96",
  "64:ff9b:1::/48",
  "100::/64",
  "2001::/23",
  "2001:db8::/32",
  "3fff::/20",
  "5f00::/16",
  "fc00::/7",
  "fe80::/10",
  "fec0::/10",
  "ff00::/8",
];

/** Undefined for a text that is no network: `10.0.0.0/8`, `fd00::/8`, or one address. */
export function parseNetwork(text: string): { address: string; bits: number } | undefined {
  const [address = "", length] = text.trim().split("/");
  const most = isIPv4(address) ? 32 : isIPv6(address) ? 128 : 0;
  const bits = length === undefined ? most : Number(length);
  if (most === 0 || !Number.isInteger(bits) || bits < 0 || bits > most || length === "") return undefined;
  return { address, bits };
}

function listOf(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const text of networks) {
    const { address, bits } = parseNetwork(text)!;
    list.addSubnet(address, bits, isIPv4(address) ? "ipv4" : "ipv6");
  }
  return list;
}

const holds = (list: BlockList, address: string): boolean =>
  list.check(address, isIPv4(address) ? "ipv4" : "ipv6");

/** The 16 bytes of an IPv6 address; undefined for none. */
export function ipv6Bytes(address: string): number[] | undefined {
  if (!isIPv6(address)) return undefined;
  const plain = address.split("%")[0]!;
  const last = plain.slice(plain.lastIndexOf(":") + 1);
  const dotted = isIPv4(last) ? last.split(".").map(Number) : undefined;
  const text = dotted
    ? `${plain.slice(0, plain.lastIndexOf(":") + 1)}${((dotted[0]! << 8) | dotted[1]!).toString(16)}:${((dotted[2]! << 8) | dotted[3]!).toString(16)}`
    : plain;
  const [head = "", tail] = text.split("::");
  const words = (part: string) =>
    part === "" ? [] : part.split(":").map((word) => Number.parseInt(word, 16));
  const before = words(head);
  const after = tail === undefined ? [] : words(tail);
  const all = [...before, ...Array(Math.max(0, 8 - before.length - after.length)).fill(0), ...after];
  return all.flatMap((word: number) => [word >> 8, word & 255]);
}

/** The IPv4 address that an IPv6 address leads to: mapped, compatible, NAT64, 6to4. */
function embedded(address: string): string | undefined {
  const bytes = ipv6Bytes(address);
  if (!bytes) return undefined;
  const zero = (from: number, to: number) => bytes.slice(from, to).every((byte) => byte === 0);
  const dotted = (from: number) => bytes.slice(from, from + 4).join(".");
  if (zero(0, 10) && bytes[10] === 255 && bytes[11] === 255) return dotted(12);
  if (zero(0, 12) && !zero(12, 16)) return dotted(12);
  if (bytes[0] === 0x00 && bytes[1] === 0x64 && bytes[2] === 0xff && bytes[3] === 0x9b) return dotted(12);
  if (bytes[0] === 0x20 && bytes[1] === 0x02) return dotted(2);
  return undefined;
}

export interface AddressGuard {
  /** Whether it may be called. */
  allows(address: string): boolean;
}

/** `allowed`: private networks that may be called all the same; `all` for every one. */
export function addressGuard(allowed: readonly string[] | "all"): AddressGuard {
  if (allowed === "all") return { allows: () => true };
  const refused = listOf(privateNetworks);
  const excepted = listOf(allowed);
  return {
    allows(address) {
      const inner = embedded(address);
      const all = inner === undefined ? [address] : [address, inner];
      if (all.some((one) => holds(excepted, one))) return true;
      return all.every((one) => !holds(refused, one));
    },
  };
}
