export type PathPart = string | number;

const escaped = (part: PathPart): string =>
  typeof part === "number" ? `${part}` : part.replaceAll("~", "~0").replaceAll("/", "~1");

/** JSON pointer (RFC 6901): `/items/0/price`. */
export const pointerOf = (path: readonly PathPart[]): string =>
  path.map((part) => `/${escaped(part)}`).join("");

/** The parts of a pointer; undefined when the text is none. */
export function partsOf(pointer: string): string[] | undefined {
  if (pointer === "") return [];
  if (!pointer.startsWith("/") || /~(?![01])/.test(pointer)) return undefined;
  return pointer
    .slice(1)
    .split("/")
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** A member that the value itself has; undefined when there is none. */
export function memberOf(value: unknown, part: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  if (Array.isArray(value)) return /^(0|[1-9]\d{0,8})$/.test(part) ? value[Number(part)] : undefined;
  return Object.hasOwn(value, part) ? (value as Record<string, unknown>)[part] : undefined;
}
