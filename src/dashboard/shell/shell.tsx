import { useEffect, useRef } from "preact/hooks";
import { messageOf, rest } from "../lib/api.ts";
import { ago, clockTime, isUtc, plain, zoneName } from "../lib/format.ts";
import { oldReads, useLoaded, useTick } from "../lib/hooks.ts";
import { shortcuts } from "../lib/keys.ts";
import { live, liveState } from "../lib/live.ts";
import { nextTheme, nextZone, theme } from "../lib/prefs.ts";
import { address, base, go, hrefOf, placeOf } from "../lib/router.ts";
import { environments, isLiveAtHome, self, signOut, viewer } from "../lib/session.ts";
import { attempt, dismiss, toasts } from "../lib/toasts.ts";
import { offeredPages, type PageGroup, pageGroups } from "../pages.tsx";
import { Button, Text } from "../ui/basics.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Icon } from "../ui/icons.tsx";

export function Sidebar({ onClose }: { onClose: () => void }) {
  const element = useRef<HTMLDivElement>(null);
  const { page } = address.value;
  // In a low window the navigation is longer than what is seen of it.
  useEffect(() => {
    element.current?.querySelector('[aria-current="page"]')?.scrollIntoView({ block: "nearest" });
  }, [page]);
  return (
    <div class="sidebar" ref={element}>
      <div class="brand">
        <a href={`${base}/`} aria-label="svc, overview">
          <svg width="22" height="22" viewBox="0 0 22 22" aria-hidden="true" focusable="false">
            <rect width="22" height="22" rx="6" />
            <path d="M5 13.500h3l2-6 2.500 8 1.800-5H17" />
          </svg>
          <span>svc</span>
        </a>
        <span class="menu-close">
          <Button kind="quiet" icon="close" label="Close the menu" onClick={onClose} />
        </span>
      </div>
      <nav aria-label="Pages">
        {pageGroups.map((group) => (
          <PageGroupList key={group} of={group} />
        ))}
      </nav>
      <Who />
    </div>
  );
}

function PageGroupList({ of }: { of: PageGroup }) {
  const { page } = address.value;
  const own = offeredPages().filter(({ group }) => group === of);
  if (own.length === 0) return null;
  return (
    <>
      <p class="nav-group" aria-hidden="true">
        {of}
      </p>
      <ul aria-label={of}>
        {own.map(({ path, name, icon, key }) => (
          <li key={path}>
            <a href={hrefOf([path])} aria-current={page === path ? "page" : undefined}>
              <Icon name={icon} />
              {name}
              <span class="kbd" aria-hidden="true">{`g ${key}`}</span>
            </a>
          </li>
        ))}
      </ul>
    </>
  );
}

function Who() {
  const known = self.value;
  if (!known) return null;
  return (
    <div class="who">
      <Icon name="user" />
      <div class="who-text">
        <span class="who-name" title={plain(known.email ?? known.id)}>
          <Text of={known.email ?? known.id} />
        </span>
        <Text
          of={
            known.kind === "dev"
              ? "no authentication"
              : known.roles.map((role) => role.replace(/^role_/, "")).join(", ")
          }
          in="span"
          class="who-roles"
        />
      </div>
      {known.kind !== "dev" && (
        <Button
          kind="quiet"
          icon="out"
          label="Sign out"
          onClick={() => void attempt(signOut, "Signed out")}
        />
      )}
    </div>
  );
}

const stateWords = {
  connecting: "Connecting",
  live: "Live",
  lost: "Connection lost, trying again",
} as const;

/** Whether what is shown moves by itself. */
function Connection() {
  const state = liveState.value;
  return (
    <span class={`connection ${state}`} role="status">
      <span class="dot" aria-hidden="true" />
      <span class="connection-word">{stateWords[state]}</span>
      {state === "lost" && <Button kind="quiet" text="Now" onClick={() => live.hurry()} />}
    </span>
  );
}

function EnvironmentChoice() {
  const { org, environment, page } = address.value;
  const known = environments.value;
  if (environment === "") return <strong class="environment">Platform</strong>;
  const shown = known.find(({ id, name }) => id === environment || name === environment);
  return (
    <div class="environment">
      <Text of={org} in="span" class="org" />
      <span class="slash" aria-hidden="true">
        /
      </span>
      <select
        aria-label="Environment"
        value={shown?.id ?? environment}
        onChange={({ currentTarget: { value } }) => go(placeOf(org, value, [page]))}
      >
        {!shown && <option value={environment}>{environment}</option>}
        {known.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

const themeIcons = { system: "sun", light: "sun", dark: "moon" } as const;

export function TopBar({ onSearch, onMenu }: { onSearch: () => void; onMenu: () => void }) {
  return (
    <header class="top">
      <span class="menu-open">
        <Button kind="quiet" icon="menu" label="Menu" onClick={onMenu} />
      </span>
      <EnvironmentChoice />
      <button type="button" class="search-open" aria-label="Search or jump to…" onClick={onSearch}>
        <Icon name="search" />
        <span class="search-word">Search or jump to…</span>
        <span class="kbd" aria-hidden="true">
          /
        </span>
      </button>
      {(address.value.environment !== "" || isLiveAtHome()) && <Connection />}
      <Button
        kind="quiet"
        icon="clock"
        label={`Times in ${zoneName()}; show ${isUtc.value ? "this browser's zone" : "UTC"}`}
        onClick={nextZone}
      >
        <span class="search-word">{zoneName()}</span>
      </Button>
      <Button
        kind="quiet"
        icon={themeIcons[theme.value]}
        label={`Theme: ${theme.value}`}
        onClick={nextTheme}
      />
    </header>
  );
}

export const ToastList = () => (
  <div class="toasts" role="status" aria-live="polite">
    {toasts.value.map(({ id, kind, text }) => (
      <div key={id} class={`toast ${kind}`}>
        <Icon name={kind === "done" ? "check" : "alert"} />
        <p>
          <bdi>{plain(text)}</bdi>
        </p>
        <Button kind="quiet" icon="close" label="Dismiss" onClick={() => dismiss(id)} />
      </div>
    ))}
  </div>
);

/** Says over any page since when what it shows is old, and why reading it again fails. */
export function OldReads() {
  const all = oldReads.value;
  const now = useTick(1_000, all.length > 0);
  const [oldest] = all.toSorted((one, other) => one.since - other.since);
  if (!oldest) return null;
  const { since, error } = oldest;
  return (
    <div class="failure old-reads" role="status">
      <Icon name="alert" />
      <p>
        {`What you see was read at ${clockTime(since).slice(0, 8)} (`}
        {/* It would be read out each second. */}
        <span class="number" aria-hidden="true">
          {ago(since, now)}
        </span>
        {"). Reading it again fails: "}
        <Text of={messageOf(error)} />
      </p>
      <Button
        text="Read again"
        onClick={() => {
          for (const { reload } of all) reload();
        }}
      />
    </div>
  );
}

/** Says over every page that a user of the platform acts in the org of a tenant. */
export function Impersonation() {
  const known = viewer.value;
  const home = self.value;
  if (!known?.impersonates || !home) return null;
  return (
    <div class="impersonation" role="alert">
      <Icon name="alert" />
      <p>
        {"You act inside "}
        <OrgName id={known.org_id} />
        {" as the platform. Everything you do is written down."}
      </p>
      <a class="button" href={placeOf(home.org_id, "", ["tenants"])}>
        Leave
      </a>
    </div>
  );
}

function OrgName({ id }: { id: string }) {
  const { value } = useLoaded(
    (signal) => rest<{ name: string }>(`/api/v1/platform/tenants/${encodeURIComponent(id)}`, { signal }),
    [id],
  );
  return <Text of={value?.name ?? id} in="strong" />;
}

/** Every key that does something now. */
export const Help = ({ onClose }: { onClose: () => void }) => (
  <Dialog title="Keys" onClose={onClose}>
    <dl class="keys">
      {[...shortcuts.value, { keys: "Ctrl K", about: "Commands" }].map(({ keys, about }) => (
        <div key={keys}>
          <dt>
            {keys.split(" ").map((key) => (
              <kbd key={key}>{key}</kbd>
            ))}
          </dt>
          <dd>{about}</dd>
        </div>
      ))}
    </dl>
  </Dialog>
);
