import { useEffect, useRef, useState } from "preact/hooks";
import { count, counted, dateTime, instantOf, plain } from "../../lib/format.ts";
import { useNet, usePages } from "../../lib/hooks.ts";
import {
  type BucketData,
  deleteBucket,
  getBucket,
  listKeys,
  type SeenChange,
  type ToldValue,
  watchPath,
} from "../../lib/kv.ts";
import { useWatch } from "../../lib/live.ts";
import { address, go, hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { Button, Empty, Facts, Failure, Page, SearchFilter, Section, Text } from "../../ui/basics.tsx";
import { ConfirmOpener, Opener } from "../../ui/dialog.tsx";
import { useOne } from "../../ui/resource.tsx";
import { bytesOf, keptFor } from "./buckets.tsx";
import { KeyValue, PutDialog } from "./key-value.tsx";

const keysPage = "200";
/** A watch begins with the values that there are: that of a larger bucket is of the chosen key alone. */
const watchedValuesMax = 500;
const watchedBytesMax = 1_024 * 1_024;
const changesShown = 50;

/** What the bucket tells while the page is open, newest first; `moved` rises with each change. */
function useChanges(bucket: BucketData, key: string, onChange: () => void) {
  const [changes, setChanges] = useState<readonly SeenChange[]>([]);
  const last = useRef(0);
  const isWhole = bucket.values <= watchedValuesMax && bucket.bytes <= watchedBytesMax;
  // The choice is made once, so that a bucket that grows does not begin anew.
  const [watchesAll] = useState(isWhole);
  const watched = watchesAll ? "" : key;
  const state = useWatch<ToldValue>(
    () =>
      watchPath(bucket.name, {
        ...(watched && { key: watched }),
        ...(last.current > 0 && { after: `${last.current}` }),
      }),
    watchesAll || key !== "" ? `${bucket.name}\n${watched}` : "",
    ({ key: changed, revision, operation }) => {
      last.current = Math.max(last.current, revision);
      setChanges((before) => [{ key: changed, revision, operation }, ...before].slice(0, changesShown));
      onChange();
    },
  );
  useEffect(() => {
    last.current = 0;
  }, [watched]);
  return { changes, state, watchesAll };
}

export function BucketPage() {
  const {
    value: bucket,
    reload,
    unread,
  } = useOne({ one: "bucket", all: "kv", allName: "buckets" }, getBucket);
  return bucket ? <BucketInside bucket={bucket} onMoved={reload} /> : unread;
}

function BucketInside({ bucket, onMoved }: { bucket: BucketData; onMoved: () => void }) {
  const { query } = address.value;
  const prefix = query.get("q") ?? "";
  const key = query.get("key") ?? "";
  const keys = usePages(
    (cursor, signal) => listKeys(bucket.name, { prefix, cursor, limit: keysPage }, signal),
    [bucket.name, prefix],
  );
  const move = () => {
    keys.reload();
    onMoved();
  };
  const { changes, state, watchesAll } = useChanges(bucket, key, move);
  useNet(move);
  return (
    <Page
      title={<Text of={bucket.name} />}
      about={bucket.description && <Text of={bucket.description} />}
      actions={
        may("secrets:manage") && (
          <>
            <Opener kind="primary" icon="plus" text="Put a key…">
              {(onClose) => <PutDialog bucket={bucket.name} onDone={move} onClose={onClose} />}
            </Opener>
            <ConfirmOpener
              text="Delete…"
              icon="trash"
              title={`Delete bucket ${plain(bucket.name)}?`}
              verb="Delete the bucket"
              act={() => deleteBucket(bucket.name)}
              done="Bucket deleted"
              onDone={() => go(hrefOf(["kv"]))}
            >
              <p>{`What it holds goes with it, and cannot be brought back: ${counted(bucket.values, "value")}.`}</p>
            </ConfirmOpener>
          </>
        )
      }
    >
      <Facts
        of={[
          ["Values", count(bucket.values)],
          ["Size", bytesOf(bucket)],
          ["Kept", keptFor(bucket)],
          ["Values of each key", count(bucket.history)],
          ["Created", dateTime(instantOf(bucket.created_at) ?? 0)],
          ["Changes", watchWord(state, watchesAll, key)],
        ]}
      />
      <div class="columns keys-and-value">
        <Section title="Keys">
          <SearchFilter label="Keys that begin with" placeholder="Key begins with…" />
          <KeyList {...{ bucket: bucket.name, prefix, chosen: key, keys }} />
        </Section>
        <div>
          {key === "" ? (
            <Empty title="Choose a key to see its value" />
          ) : (
            <KeyValue key={key} bucket={bucket} name={key} changes={changes} onDone={move} />
          )}
          {changes.length > 0 && <Changes of={changes} bucket={bucket.name} prefix={prefix} />}
        </div>
      </div>
    </Page>
  );
}

function watchWord(state: string, watchesAll: boolean, key: string): string {
  if (!watchesAll && key === "") return "every 30 s, as it is large";
  if (state === "live") return "live";
  return state === "refused" ? "refused" : "connecting";
}

function KeyList(props: {
  bucket: string;
  prefix: string;
  chosen: string;
  keys: ReturnType<typeof usePages<string>>;
}) {
  const { bucket, prefix, chosen, keys } = props;
  if (keys.error !== undefined) return <Failure error={keys.error} onRetry={keys.reload} />;
  if (keys.value?.length === 0) return <Empty title={prefix ? "No key begins so" : "No keys"} />;
  return (
    <>
      <ul class="plain-list key-list">
        {keys.value?.map((key) => (
          <li key={key}>
            <a
              class="grows"
              href={hrefOf(["kv", bucket], { q: prefix, key })}
              aria-current={key === chosen || undefined}
            >
              <Text of={key} />
            </a>
          </li>
        ))}
      </ul>
      {keys.hasMore && <Button onClick={keys.showMore}>Show more</Button>}
    </>
  );
}

function Changes(props: { of: readonly SeenChange[]; bucket: string; prefix: string }) {
  return (
    <Section title="Newest changes">
      <ul class="plain-list">
        {props.of.slice(0, 20).map(({ key, revision, operation }) => (
          <li key={revision}>
            <span class="faint number">{count(revision)}</span>
            <Text
              of={key}
              href={hrefOf(["kv", props.bucket], { q: props.prefix, key, revision: `${revision}` })}
              class="grows"
            />
            <span class="faint">{operation === "put" ? "put" : "deleted"}</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}
