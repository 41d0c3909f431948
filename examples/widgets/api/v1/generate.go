package v1

//go:generate go tool controller-gen object crd paths=. output:crd:dir=../../config/crd
