/** Where a frame stands: `at name (place:1:2)` or `at place:1:2`. */
const placeOf = /(?:\(|\bat (?:async )?)([^()\s][^()]*):\d+:\d+\)?$/;
/** This package, installed or in its own repository; not where it is part of a bundle of its user. */
const packageFolder = /^.*[/\\]node_modules[/\\]svc(?=[/\\])|^.*[/\\]src[/\\]sdk(?=[/\\]wire[/\\]stack\.ts$)/;

/** No frame is longer. */
const frameCharactersMax = 1_000;

const placeIn = (line: string): string | undefined =>
  line.length > frameCharactersMax ? undefined : placeOf.exec(line.trimEnd())?.[1];

let own: string | undefined;

/** The folder of this package as frames name it; empty where it cannot be separated from its user. */
function ownFolder(): string {
  if (own !== undefined) return own;
  // The first line is this function.
  const [place] = String(new Error().stack)
    .split("\n")
    .flatMap((line) => placeIn(line) ?? []);
  if (place === undefined) return "";
  own = packageFolder.exec(place)?.[0] ?? "";
  return own;
}

/** A stack whose frames of this package are counted in its last line, so that the user's stand first. */
export function foldedStack(stack: string): string {
  const folder = ownFolder();
  if (folder === "" || !stack.includes(folder)) return stack;
  const lines = stack.split("\n");
  const kept = lines.filter((line) => {
    const place = placeIn(line);
    return !place?.startsWith(folder) || !/^[/\\]/.test(place.slice(folder.length));
  });
  const folded = lines.length - kept.length;
  return folded === 0 ? stack : [...kept, `    … ${folded} of svc`].join("\n");
}
