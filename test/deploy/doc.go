// Package deploy holds what is promised of what operators install: the image, the archives, the chart and the systemd
// units. It has only tests, in a module of its own, because they need Helm and other tools that the product does not.
package deploy
