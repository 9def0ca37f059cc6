import { Component, type ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { messageOf } from "./lib/api.ts";
import { plain } from "./lib/format.ts";
import { firstReads } from "./lib/hooks.ts";
import { addShortcuts, followKeys } from "./lib/keys.ts";
import { live } from "./lib/live.ts";
import { nextTheme } from "./lib/prefs.ts";
import { address, base, go, hrefOf, pageKey, placeOf } from "./lib/router.ts";
import {
  enterOrg,
  environments,
  isAtHome,
  isLiveAtHome,
  isPlatformUser,
  loadSession,
  refused,
  standing,
  viewer,
} from "./lib/session.ts";
import { toast } from "./lib/toasts.ts";
import { SignIn } from "./pages/sign-in.tsx";
import { isOffered, offeredPages, type PageEntry, pageAt } from "./pages.tsx";
import { Palette } from "./shell/palette.tsx";
import { Help, Impersonation, OldReads, Sidebar, ToastList, TopBar } from "./shell/shell.tsx";
import { Failure, Missing } from "./ui/basics.tsx";
import { Dialog } from "./ui/dialog.tsx";

/** An error in one page leaves the shell, and the way to other pages. */
class Guard extends Component<{ children: ComponentChildren }, { error?: unknown }> {
  static override getDerivedStateFromError = (error: unknown) => ({ error });

  override render() {
    const { error } = this.state;
    return error === undefined ? (
      this.props.children
    ) : (
      <Failure
        error={`This page failed: ${messageOf(error)}`}
        onRetry={() => this.setState({ error: undefined })}
      />
    );
  }
}

/** Whether the viewer's org has it; believed where the viewer may not list them. */
const isEnvironment = (shown: string): boolean =>
  shown === "" ||
  environments.value.length === 0 ||
  environments.value.some(({ id, name }) => id === shown || name === shown);

function Shown({ entry }: { entry: PageEntry | undefined }) {
  const { rest, org, environment } = address.value;
  const mine = viewer.value?.org_id;
  if (isPlatformUser() && org !== mine) return <p class="page faint">Reading…</p>;
  if (mine !== undefined && org !== mine)
    return (
      <Missing title="This is no address of your organization">
        <a href={`${base}/`}>Go to yours</a>
      </Missing>
    );
  if (!isEnvironment(environment))
    return (
      <Missing title="There is no such environment here">
        <a href={`${base}/`}>Go to your own</a>
      </Missing>
    );
  if (!entry)
    return (
      <Missing title="There is no such page">
        <a href={`${base}/`}>Go to the first page</a>
      </Missing>
    );
  if (!isOffered(entry)) return <Missing title="Your roles do not show this page" />;
  const Page = rest.length > 0 && entry.one ? entry.one.shows : entry.shows;
  return <Page />;
}

/** The address without an org, an environment or a page becomes that of the viewer's own. */
function settleAddress(): void {
  const { org, environment, page } = address.value;
  const known = viewer.value;
  if (!known || standing.value !== "signed in") return;
  const isNamed = org !== "" && org !== "sign-in";
  if (isNamed && org !== known.org_id) return;
  const isHome = isAtHome();
  if (isNamed && page !== "" && (environment !== "" || isHome)) return;
  const place = isHome ? "" : environment || known.environment_id;
  const first = page || (offeredPages()[0]?.path ?? "overview");
  go(placeOf(known.org_id, place, [first]), { replaces: true });
}

function Signed() {
  const [isSearching, setSearching] = useState(false);
  const [isHelping, setHelping] = useState(false);
  const [hasMenu, setMenu] = useState(false);
  const { org, environment, page, rest } = address.value;
  const entry = pageAt(page);

  const isKnown = environment !== "" && org === viewer.value?.org_id && isEnvironment(environment);
  const place = isKnown ? `${org}/${environment}` : isLiveAtHome() ? org : "";
  useEffect(() => live.use(place), [place]);
  useEffect(() => () => live.use(""), []);
  useEffect(() => {
    // Somebody who is signed in tried to join a sign-in.
    if (refused.value !== "") toast("failed", refused.value);
    refused.value = "";
  }, []);
  useEffect(() => setMenu(false), [pageKey.value]);
  useEffect(() => {
    document.title = [...rest.map(plain), entry?.name ?? "", "svc"].filter(Boolean).join(" · ");
  }, [entry, pageKey.value]);
  useEffect(() => {
    const forget = addShortcuts([
      ...offeredPages().map(({ key, name, path }) => ({
        ...{ keys: `g ${key}`, about: name, act: () => go(hrefOf([path])) },
      })),
      { keys: "/", about: "Search", act: () => setSearching(true) },
      { keys: "?", about: "Keys", act: () => setHelping(true) },
      { keys: "t", about: "Theme", act: nextTheme },
    ]);
    const unfollow = followKeys(() => setSearching(true));
    return () => {
      forget();
      unfollow();
    };
  }, [viewer.value]);

  return (
    <div class={`shell ${hasMenu ? "with-menu" : ""} ${viewer.value?.impersonates ? "impersonates" : ""}`}>
      <a class="skip" href="#content">
        Skip to content
      </a>
      <Sidebar onClose={() => setMenu(false)} />
      <TopBar onSearch={() => setSearching(true)} onMenu={() => setMenu(!hasMenu)} />
      <Impersonation />
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and a page may have nothing else to focus */}
      <main id="content" tabIndex={0} aria-busy={firstReads.value > 0}>
        <OldReads />
        <Guard key={pageKey.value}>
          <Shown entry={entry} />
        </Guard>
      </main>
      {isSearching && <Palette onClose={() => setSearching(false)} onHelp={() => setHelping(true)} />}
      {isHelping && <Help onClose={() => setHelping(false)} />}
      {standing.value === "expired" && (
        <Dialog title="Your session has ended" stays onClose={() => {}}>
          <p>Sign in to go on. What you typed is still here.</p>
          <SignIn isInside />
        </Dialog>
      )}
    </div>
  );
}

export function App() {
  const [error, setError] = useState<unknown>();
  const begin = () => {
    setError(undefined);
    loadSession().catch(setError);
  };
  useEffect(() => {
    // A sign-in link of the first start is used by the page of signing in.
    if (location.hash === "" || address.value.org !== "sign-in") begin();
    else standing.value = "signed out";
  }, []);
  const now = standing.value;
  const { org } = address.value;
  useEffect(() => void enterOrg().catch(setError), [now, org]);
  useEffect(settleAddress, [now, pageKey.value, viewer.value]);
  return (
    <>
      {error !== undefined && <Failure error={error} onRetry={begin} />}
      {now === "signed out" && <SignIn />}
      {(now === "signed in" || now === "expired") && <Signed />}
      <ToastList />
    </>
  );
}
