import { render } from "preact";
import { App } from "./app.tsx";
import { followLinks } from "./lib/router.ts";

followLinks();
render(<App />, document.getElementById("app")!);
