// Before anything is drawn: the theme that was chosen, and that scripts run.
(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");
  try {
    var chosen = localStorage.getItem("redrive-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch (_) { /* no storage: the system's theme */ }
})();
