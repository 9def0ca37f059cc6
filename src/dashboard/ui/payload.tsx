import { useState } from "preact/hooks";
import type { CutView } from "../lib/cuts.ts";
import { bytes, plain } from "../lib/format.ts";
import { useLoaded } from "../lib/hooks.ts";
import { Button, Failure } from "./basics.tsx";
import { JsonView } from "./json-view.tsx";

const charactersShown = 2_000;

type ReadWhole = (signal: AbortSignal) => Promise<unknown>;

function Whole({ cut, what, read }: { cut: CutView; what: string; read: ReadWhole }) {
  const { value, error, reload } = useLoaded(
    async (signal) => ({ read: await read(signal) }),
    [cut.bytes, cut.begins],
  );
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  return value ? <JsonView value={value.read} what={what} /> : <p class="faint">Reading…</p>;
}

/** A value, or how it begins where the server cut it: `read` then gives the whole to who wants it. */
export function Payload(props: { value: unknown; cut: CutView | undefined; what: string; read: ReadWhole }) {
  const { value, cut, what, read } = props;
  const [isWanted, setWanted] = useState(false);
  if (!cut) return <JsonView value={value} what={what} />;
  if (isWanted) return <Whole {...{ cut, what, read }} />;
  return (
    <div class="json">
      <p class="json-tree">
        <code class="cut-begins">
          <bdi>{`${plain(cut.begins.slice(0, charactersShown))}…`}</bdi>
        </code>
      </p>
      <Button onClick={() => setWanted(true)}>{`Show all ${bytes(cut.bytes)} of the ${what}`}</Button>
    </div>
  );
}
