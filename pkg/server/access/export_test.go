package access

// RightsOf is rightsOf, for the tests that know the policies of scripts.
var RightsOf = rightsOf
