import { useState } from "preact/hooks";
import { unlessMissing } from "../../lib/api.ts";
import { bytes, count } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { getKey, listRevisions, type RevisionData, readValue } from "../../lib/kv.ts";
import { address, hrefOf } from "../../lib/router.ts";
import { Button, Failure, Section, When } from "../../ui/basics.tsx";
import { JsonDiff } from "../../ui/diff.tsx";
import { ReadTable } from "../../ui/table.tsx";

interface ComparedRevisions {
  newer: number;
  older: number;
}

/** What is kept of a key, newest first, and what a revision changed; read again at each `newest`. */
export function Revisions(props: { bucket: string; name: string; newest: number }) {
  const { bucket, name, newest } = props;
  const [compared, setCompared] = useState<ComparedRevisions>();
  const read = useLoaded(
    async (signal) => (await unlessMissing(listRevisions(bucket, name, signal))) ?? [],
    [bucket, name, newest],
  );
  const shown = address.value.query.get("revision") ?? "";
  const olderOf = ({ revision }: RevisionData) =>
    read.value?.find((one) => one.operation === "put" && one.revision < revision)?.revision;
  return (
    <Section title="Revisions">
      <ReadTable
        read={read}
        label="Revisions"
        keyOf={({ revision }) => `${revision}`}
        columns={[
          {
            name: "Revision",
            of: (one) =>
              one.operation === "delete" ? (
                <span class="number">{count(one.revision)}</span>
              ) : (
                <a
                  class="number"
                  aria-current={shown === `${one.revision}` ? "true" : undefined}
                  href={hrefOf(["kv", bucket], { key: name, revision: `${one.revision}` })}
                >
                  {count(one.revision)}
                </a>
              ),
          },
          { name: "Value", of: (one) => (one.operation === "delete" ? "deleted" : bytes(one.bytes)) },
          { name: "Written", isNumber: true, of: (one) => <When at={one.created_at} /> },
          {
            name: "",
            of: (one) => {
              const older = olderOf(one);
              return (
                one.operation === "put" &&
                older !== undefined && (
                  <span class="row-actions">
                    <Button
                      label={`Compare revision ${count(one.revision)} with the one before`}
                      isPressed={compared?.newer === one.revision}
                      onClick={() =>
                        setCompared(
                          compared?.newer === one.revision ? undefined : { newer: one.revision, older },
                        )
                      }
                    >
                      Compare
                    </Button>
                  </span>
                )
              );
            },
          },
        ]}
        empty="None is kept"
      />
      {compared && <Difference bucket={bucket} name={name} {...compared} />}
    </Section>
  );
}

function Difference({ bucket, name, newer, older }: { bucket: string; name: string } & ComparedRevisions) {
  const { value, error, reload } = useLoaded(
    (signal) => Promise.all([older, newer].map((one) => getKey(bucket, name, `${one}`, signal))),
    [bucket, name, newer, older],
  );
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (!value) return <p class="faint">Reading…</p>;
  const [before, after] = value.map(({ value: stored }) => readable(stored));
  if (before === undefined || after === undefined) return <p class="hint">Its bytes are no text.</p>;
  return (
    <>
      <p class="hint">{`From revision ${count(older)} to ${count(newer)}`}</p>
      <JsonDiff before={before} after={after} />
    </>
  );
}

/** JSON where the text is JSON; undefined for bytes that are no text. */
function readable(stored: string): unknown {
  const { text } = readValue(stored);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
