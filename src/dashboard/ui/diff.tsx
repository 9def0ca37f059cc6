import { plain } from "../lib/format.ts";

/** More lines than this are compared in place only: the exact comparison costs their product. */
const exactLinesMax = 600;
const linesShown = 2_000;

interface DiffLine {
  kind: "same" | "gone" | "new";
  text: string;
}

/** What the longest common lines leave: lines that are gone and new ones. */
export function diffLines(before: readonly string[], after: readonly string[]): DiffLine[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (
    end < Math.min(before.length, after.length) - start &&
    before[before.length - 1 - end] === after[after.length - 1 - end]
  )
    end++;
  const same = (text: string): DiffLine => ({ kind: "same", text });
  const middle = inner(before.slice(start, before.length - end), after.slice(start, after.length - end));
  return [...before.slice(0, start).map(same), ...middle, ...before.slice(before.length - end).map(same)];
}

function inner(before: readonly string[], after: readonly string[]): DiffLine[] {
  const gone = (text: string): DiffLine => ({ kind: "gone", text });
  const added = (text: string): DiffLine => ({ kind: "new", text });
  if (before.length * after.length > exactLinesMax * exactLinesMax)
    return [...before.map(gone), ...after.map(added)];
  const width = after.length + 1;
  const common = new Uint16Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i--)
    for (let j = after.length - 1; j >= 0; j--)
      common[i * width + j] =
        before[i] === after[j]
          ? common[(i + 1) * width + j + 1]! + 1
          : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < before.length && j < after.length) {
    if (before[i] === after[j]) {
      lines.push({ kind: "same", text: before[i]! });
      i++;
      j++;
    } else if (common[(i + 1) * width + j]! >= common[i * width + j + 1]!) lines.push(gone(before[i++]!));
    else lines.push(added(after[j++]!));
  }
  return [...lines, ...before.slice(i).map(gone), ...after.slice(j).map(added)];
}

const signs = { same: " ", gone: "−", new: "+" } as const;
const words = { same: undefined, gone: "removed", new: "added" } as const;

/** Two JSON values line by line. */
export function JsonDiff({ before, after }: { before: unknown; after: unknown }) {
  const linesOf = (value: unknown) => (JSON.stringify(value, null, 2) ?? "null").split("\n");
  const lines = diffLines(linesOf(before), linesOf(after));
  return (
    <div class="diff">
      {lines.slice(0, linesShown).map(({ kind, text }, index) => (
        <div key={index} class={`diff-line ${kind}`}>
          <span class="diff-sign" {...(words[kind] && { role: "img", "aria-label": words[kind] })}>
            {signs[kind]}
          </span>
          <bdi>{plain(text.slice(0, linesShown))}</bdi>
        </div>
      ))}
      {lines.length > linesShown && <p class="hint">{`${lines.length - linesShown} more lines`}</p>}
    </div>
  );
}
